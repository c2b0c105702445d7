"""Network layout of a run, read from its records for `figures.topology`."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from harness.records import run_directory
from harness.reporting.analysis import load
from profiles.base import Link

QUANTITIES = ("rate_mbit", "delay_ms", "jitter_ms", "loss")


class Range(NamedTuple):
    low: float
    high: float


class ConditionRanges(NamedTuple):
    """Ranges of the conditions that one link direction had during a run, in emulated units."""

    rate_mbit: Range
    delay_ms: Range  # of the link alone, without delays between sites
    jitter_ms: Range
    loss: Range


class NetworkLayout(NamedTuple):
    """Nodes and links of a run's network: a star (`left` is None), or a dumbbell with a trunk."""

    nodes: int
    workers_per_node: int
    left: int | None  # nodes on the left half of a dumbbell
    links: dict[str, ConditionRanges]  # by shaped direction: up0, down0, trunk_up ...
    sites: list[int] | None  # of each node
    site_delays_ms: list[list[float]] | None  # [from site][to site]
    flows: dict[str, int]  # most competing flows at a time, by path: 0-1, trunk_up ...
    machines: bool  # real machines on their own network
    notes: str


def read(run: Path | str) -> NetworkLayout | None:
    """Return the layout of run directory `run`; None if its records have no links or no samples.

    Records that lack a needed value raise the exception of that lookup, such as KeyError.
    """
    run = Path(run)
    environment = run_directory.read_json(run / "environment.json") or {}
    network, dilation = environment.get("network") or {}, environment.get("dilation") or 1.0
    samples = load.links(run)
    if "links" not in network or samples.empty:
        return None
    settings = load.config(run)
    per_node = settings.get("workers_per_node", 1)
    seen = _extremes(run, network, dilation)
    for name, planned in samples[samples.link.isin(list(seen))].groupby("link").planned_mbit:
        low, high = seen[str(name)].rate_mbit
        rate = Range(min(low, float(planned.min())), max(high, float(planned.max())))
        seen[str(name)] = seen[str(name)]._replace(rate_mbit=rate)
    of_workers = settings["workers"] // settings.get("workers_per_node", 1)
    nodes = max(of_workers, sum(re.fullmatch(r"up\d+", name) is not None for name in seen))
    left, sites = network.get("left"), network.get("sites")
    delays_ms = network.get("site_delays_ms")
    if left is not None and not 0 <= left <= nodes:
        raise ValueError(f"left must be in [0, {nodes}]")
    return NetworkLayout(
        nodes=nodes,
        workers_per_node=int(per_node),
        left=left,
        links=seen,
        sites=[int(sites[node]) for node in range(nodes)] if sites else None,
        site_delays_ms=[list(map(float, row)) for row in delays_ms] if delays_ms else None,
        flows=_flows(run),
        machines="machines" in network,
        notes=_notes(network, dilation),
    )


def _extremes(run: Path, network: dict[str, Any], dilation: float) -> dict[str, ConditionRanges]:
    """Return the range of each link's conditions: initial ones and all recorded changes."""
    found: dict[str, list[Link]] = {}
    for name, held in network["links"].items():
        netem = (held.get("netem") or [{}])[0]  # the first site's if there are several
        delay_ms = netem.get("delay_us", 0) / 1000 / dilation
        if name.startswith("down") and network.get("sites"):
            sites, delays = network["sites"], network["site_delays_ms"]
            delay_ms -= delays[min(sites)][sites[int(name.removeprefix("down"))]]
        jitter_ms = netem.get("jitter_us", 0) / 1000 / dilation
        rate_mbit = held["rate_mbit"] * dilation  # the kernel's rate is real
        found[name] = [Link(rate_mbit, max(0.0, delay_ms), jitter_ms, netem.get("loss", 0.0))]
    for event in run_directory.read_events(run):
        if event["event"] == "conditions":
            for name, link in event["links"].items():
                found.setdefault(name, []).append(Link(**link))
    return {name: _span(links) for name, links in found.items()}


def _span(links: list[Link]) -> ConditionRanges:
    values = [[getattr(link, name) for link in links] for name in QUANTITIES]
    return ConditionRanges(*(Range(min(each), max(each)) for each in values))


def _flows(run: Path) -> dict[str, int]:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for event in run_directory.read_events(run):
        if event["event"] in ("flow_started", "flow_stopped"):
            running[event["pair"]] += 1 if event["event"] == "flow_started" else -1
            most[event["pair"]] = max(most[event["pair"]], running[event["pair"]])
    return dict(most)


def _notes(network: dict[str, Any], dilation: float) -> str:
    said = [f"TCP {network['congestion_control']}"] if "congestion_control" in network else []
    if network.get("queue_bytes"):
        said.append(f"a queue of {network['queue_bytes'] / 1000:,.0f} kB before each shaped link")
    slow = f"; an emulated second takes {dilation:g} real ones" if dilation != 1 else ""
    return f"rates and delays are emulated{slow}. {', '.join(said)}"
