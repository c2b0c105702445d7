"""A matrix of regions in a CSV file: round trips between them, and optionally rates.

The header is `sender,receiver,rtt_ms[,rate_mbit]`. Lines before it that start with `#` are
comments. With an empty rate only the links limit the traffic of that pair. The two ways may differ.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from profiles.limits import MOST_DELAY_MS, check_between, check_mbit
from profiles.recordings import find_in, number, read_from

SHIPPED_REGIONS = Path(__file__).parent / "sites"
REGION_COLUMNS = ("sender", "receiver", "rtt_ms", "rate_mbit")
MOST_PAIRS = 100_000


class SiteMatrix(NamedTuple):
    """One-way delays and rates between sites, by [from][to]. None: only links limit the rate."""

    delays_ms: tuple[tuple[float, ...], ...]
    rates_mbit: tuple[tuple[float | None, ...], ...]


def read_regions(path: Any, names: Sequence[Any]) -> SiteMatrix:
    """Read delays and rates between the regions `names`.

    Inside a region there is no delay besides that of links. Raise ValueError with file and line.
    """
    place = find_in(SHIPPED_REGIONS, path)
    if place is None:
        known = ", ".join(sorted(file.name for file in SHIPPED_REGIONS.glob("*.csv")))
        wanted = f"regions must be a file: absolute, from the working directory, or one of {known}"
        raise ValueError(f"{wanted}; got {path!r}")
    pairs = _pairs(path, read_from(place, path).lines)
    known_names = sorted({name for pair in pairs for name in pair})
    for name in names:
        if name not in known_names:
            raise ValueError(f"sites must be among {', '.join(known_names)}, got {name!r}")
    for a in names:
        for b in names:
            if a != b and (a, b) not in pairs:
                raise ValueError(f"{path}: must have a row from {a} to {b}, got none")
    rows = [[(0.0, None) if a == b else pairs[a, b] for b in names] for a in names]
    return SiteMatrix(
        tuple(tuple(rtt_ms / 2 for rtt_ms, _ in row) for row in rows),
        tuple(tuple(rate for _, rate in row) for row in rows),
    )


def _pairs(path: Any, lines: list[str]) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Parse `lines` of CSV. Return round trip in ms, and rate in Mbit/s or None, by region pair.

    Keys are (sender, receiver). Raise ValueError, naming file and line, for malformed lines, values
    out of range or repeated pairs.
    """
    top = next((place for place, line in enumerate(lines) if line[:1] != "#"), len(lines))
    header = tuple(lines[top].split(",")) if top < len(lines) else ()
    if header not in (REGION_COLUMNS, REGION_COLUMNS[:3]):
        wanted = "header must be sender,receiver,rtt_ms[,rate_mbit]"
        raise ValueError(f"{path}:{top + 1}: {wanted}, got {','.join(header)!r}")
    if len(lines) > MOST_PAIRS:
        raise ValueError(f"{path}: must have at most {MOST_PAIRS} lines, got {len(lines)}")
    found: dict[tuple[str, str], tuple[float, float | None]] = {}
    for place, line in enumerate(lines[top + 1 :], start=top + 2):
        where, texts = f"{path}:{place}", [text.strip() for text in line.split(",")]
        if len(texts) != len(header):
            raise ValueError(f"{where}: must have {len(header)} values, got {line!r}")
        sender, receiver, rtt, *rate = texts
        if not (sender and receiver) or sender == receiver or (sender, receiver) in found:
            raise ValueError(f"{where}: must be a pair of two regions, once, got {line!r}")
        rtt_ms = number(rtt, f"{where}: rtt_ms")
        rate_mbit = number(rate[0], f"{where}: rate_mbit") if rate and rate[0] else None
        try:
            check_between(0, 2 * MOST_DELAY_MS, rtt_ms=rtt_ms)
            if rate_mbit is not None:
                check_mbit(rate_mbit=rate_mbit)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        found[sender, receiver] = rtt_ms, rate_mbit
    return found
