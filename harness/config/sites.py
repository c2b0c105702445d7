"""Sites of nodes, for all star networks: the site of each node, and delays between sites."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from profiles.limits import MOST_DELAY_MS, as_tuple, check_between, check_whole
from profiles.regions import read_regions

Rates = tuple[tuple[float | None, ...], ...]


class Sites(NamedTuple):
    """Site of each node, delays [from][to] in ms one way, and rates in Mbit/s if known."""

    of_nodes: tuple[int, ...]
    delays_ms: tuple[tuple[float, ...], ...]
    rates_mbit: Rates | None = None


def sites_of(sites: Any, site_delays_ms: Any, regions: Any) -> Sites | None:
    """Build sites from numbers and a delay matrix, or from names and a file of `regions`.

    Return None if all nodes are in one place. Raise ValueError for other settings.
    """
    if regions is not None:
        return _of_regions(sites, site_delays_ms, regions)
    if site_delays_ms is not None:
        rows = as_tuple("site_delays_ms", site_delays_ms, "lists")
        if not all(isinstance(row, Sequence) and row and not isinstance(row, str) for row in rows):
            wanted = "site_delays_ms must be a list of lists of numbers"
            raise ValueError(f"{wanted}, got {site_delays_ms!r}")
        site_delays_ms = tuple(map(tuple, rows))
    if sites is not None:
        sites = as_tuple("sites", sites, "whole numbers")
        for site in sites:
            if not isinstance(site, int):
                raise ValueError(f"sites must be whole numbers, one a node, got {list(sites)!r}")
    if (sites is None) != (site_delays_ms is None):
        raise ValueError("sites and site_delays_ms must be given both or neither")
    if sites is None or site_delays_ms is None:
        return None
    _check_matrix(site_delays_ms)
    for site in sites:
        check_whole(0, len(site_delays_ms) - 1, sites=site)
    return Sites(sites, site_delays_ms)


def check_sites(sites: Sites | None, nodes: int) -> None:
    """Raise ValueError unless every node has a site."""
    if sites is not None and len(sites.of_nodes) != nodes:
        told = sites.of_nodes
        raise ValueError(f"sites must name one site for each of {nodes} nodes, got {told}")


def _of_regions(sites: Any, site_delays_ms: Any, regions: Any) -> Sites:
    if site_delays_ms is not None:
        raise ValueError("site_delays_ms must be null where regions tells the delays")
    names = as_tuple("sites", sites, "names of regions, one a node")
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"sites must be names of regions, one a node, got {list(names)!r}")
    distinct = tuple(dict.fromkeys(names))
    matrix = read_regions(regions, distinct)
    of_nodes = tuple(distinct.index(name) for name in names)
    return Sites(of_nodes, matrix.delays_ms, matrix.rates_mbit)


def _check_matrix(rows: Sequence[Sequence[float]]) -> None:
    for row in rows:
        if len(row) != len(rows):
            raise ValueError(f"site_delays_ms must be square, got a row of {len(row)}: {list(row)}")
        for delay in row:
            check_between(0, MOST_DELAY_MS, site_delays_ms=delay)
