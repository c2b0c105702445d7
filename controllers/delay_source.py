"""Sources of DC2's delays: measured, or replayed (Abdelmoniem & Canini, 2021, Fig. 9).

For Fig. 9 the paper gave the monitor the delays of a recorded network while gradients used a fast
one. That is an open loop: the density does not influence the delays that the controller sees.
"""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from controllers.base import Observation
from controllers.limits import check, check_whole

BYTES_PER_MBIT = 125_000
WAYS = ("up", "down")


class DelaySource(Protocol):
    """Source of the delay of each exchange."""

    def delay_s(self, seen: Observation) -> float:
        """Return the delay, >= 0 seconds, of the exchange that `seen` describes."""
        ...


class Measured:
    """Source that returns the measured delay of the exchange."""

    def delay_s(self, seen: Observation) -> float:
        return seen.comm_s


@dataclass
class FromProfile:
    """Source that computes the delay of an uncompressed exchange on the network `profile`.

    The delay is that of a ring all-reduce of the dense gradient over the slowest link, shared
    fairly with competing flows, plus 2 (P - 1) hops. The rate is that at the end of the exchange.
    `profile` has link(time_s, node, way) and flows(time_s), in emulated seconds and Mbit/s.
    """

    profile: Any
    workers_per_node: int = 1

    def __post_init__(self) -> None:
        has_links = callable(getattr(self.profile, "link", None))
        check("profile", self.profile, has_links, "a network profile")
        check_whole(1, workers_per_node=self.workers_per_node)

    def delay_s(self, seen: Observation) -> float:
        nodes = max(1, seen.workers // self.workers_per_node)
        links = [self.profile.link(seen.time_s, node, way) for node in range(nodes) for way in WAYS]
        slowest_mbit = min(link.rate_mbit for link in links)
        hop_s = 2 * max(link.delay_ms for link in links) / 1000
        rate = BYTES_PER_MBIT * slowest_mbit / (1 + self.profile.flows(seen.time_s))
        rounds = 2 * (seen.workers - 1)
        return rounds * (seen.dense_bytes / seen.workers / rate + hop_s)


@dataclass
class Recorded:
    """Source that reads one number per exchange from a CSV file, and starts over at its end.

    Lines that start with `#` are comments. With `rank`, only rows with this value in the column
    `rank` count. So `column: comm_s` replays one worker of an earlier run's steps.csv.
    """

    path: str  # absolute, or from the working directory
    column: str = "comm_s"  # seconds, >= 0
    rank: int | None = None
    delays_s: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = isinstance(self.path, str) and Path(self.path).is_file()
        check("path", self.path, found, "a CSV file, absolute or from the working directory")
        lines = Path(self.path).read_text(encoding="utf-8", errors="replace").splitlines()
        rows = [(place, line) for place, line in enumerate(lines, start=1) if line[:1] != "#"]
        self.delays_s = self._parse(rows)
        if not self.delays_s:
            of_rank = "" if self.rank is None else f" of rank {self.rank}"
            raise ValueError(f"{self.path}: must have at least one row{of_rank}, got none")

    def delay_s(self, seen: Observation) -> float:
        return self.delays_s[seen.step % len(self.delays_s)]

    def _parse(self, rows: list[tuple[int, str]]) -> list[float]:
        """Return the numbers of the column. ValueError names file, line and value."""
        columns: list[str] = []
        delays_s = []
        for place, line in rows:
            where, values = f"{self.path}:{place}", next(csv.reader([line]), [])
            if not columns:
                columns = values
                for needed in (self.column, *(() if self.rank is None else ("rank",))):
                    if needed not in columns:
                        raise ValueError(f"{where}: must have a column {needed}, got {columns}")
                continue
            if len(values) != len(columns):
                raise ValueError(
                    f"{where}: must have {len(columns)} values, as its header, got {line!r}"
                )
            row = dict(zip(columns, values, strict=True))
            if self.rank is None or row["rank"] == str(self.rank):
                delays_s.append(_seconds(row[self.column], f"{where}: {self.column}"))
        return delays_s


def _seconds(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise ValueError(f"{where} must be a number >= 0, got {text!r}")
    return value
