"""Check whether links delivered their plan while ranks communicated.

Byte counters of links.csv are compared with the plan's rates over the times of collectives.csv.
Lower bound: while all ranks are in a collective with bytes to move, the slowest link delays all of
them, so the link that carried most must have carried the slowest link's plan. Upper bound: no link
carries more than its own rate while any rank is in a collective, and nothing between two.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from harness.emulation.packets import BURST_US
from harness.runner.checks import CouldNotCheck

MOST_HOP_S = 0.003  # real, on a busy machine: beside helpers on 2 cores 0.5 (2 ranks) to 1.1 ms (4)
LEAST_POOLED = 0.8  # of the plan, beside latency, that short exchanges get together
HOP_S = 0.0002  # real: a ring of 4 takes 0.4 to 0.9 ms, in 6 hops, to all-reduce 4 bytes
LEAST_EXCHANGE_S = 0.02  # real: in a shorter one ranks wait for each other more than for links
WINDOW_S = 1.0  # real, of communication: the "second" of the worst second
LEAST_S = 0.25  # real, of long exchanges: fewer are judged like short ones
BYTES_PER_MBIT_S = 125_000
LARGEST_PACKET_BYTES = 68_000  # goes whole through a shaper

Array = NDArray[np.float64]
Row = dict[str, str]


class Delivery(NamedTuple):
    """Carried bytes over planned bytes. The worst values are of a second of communication.

    None means that ranks communicated too little, or that no bound holds.
    """

    communicated_s: float  # emulated, all ranks at once in what fills links
    delivered: float | None = None  # carried bytes / least bytes that the slowest link had to carry
    delivered_worst: float | None = None
    worst_s: float | None = None  # emulated, when that second began
    exceeded: float | None = None  # carried / most bytes that the plan allows, highest of all links
    exceeded_worst: float | None = None
    exceeded_link: str | None = None
    short_exchanges: int = 0  # too short to judge one by one
    short_took: float | None = None  # their time / time that plan and latency allow
    short_took_worst: float | None = None  # of about a second of them
    short_worst_s: float | None = None  # emulated, when that began


class StepFunction:
    """A function of time that is constant between `times`, and its integral."""

    def __init__(self, times: Array, values: Array) -> None:
        self._times, self._values = times, values
        self._sums = np.concatenate([[0.0], np.cumsum(np.diff(times) * values[:-1])])

    @classmethod
    def slowest(cls, rates: Iterable["StepFunction"]) -> Self:
        """Return the minimum of all functions at all times."""
        each = list(rates)
        times = np.unique(np.concatenate([rate._times for rate in each]))
        return cls(times, np.min([rate.values(times) for rate in each], axis=0))

    def values(self, at: Array) -> Array:
        number = np.clip(np.searchsorted(self._times, at, "right") - 1, 0, None)
        return self._values[number]

    def until(self, at: Array) -> Array:
        """Return the integral from `times[0]` to `at`. The first value also holds before it."""
        number = np.clip(np.searchsorted(self._times, at, "right") - 1, 0, None)
        return self._sums[number] + (at - self._times[number]) * self._values[number]

    def reached(self, integral: Array) -> Array:
        """Return times at which the integral reaches these values, for a positive function."""
        number = np.clip(np.searchsorted(self._sums, integral, "right") - 1, 0, None)
        return self._times[number] + (integral - self._sums[number]) / self._values[number]


class Spans(NamedTuple):
    """Periods in order of time, without overlap."""

    starts: Array
    ends: Array

    def joined(self) -> "Spans":
        """Return the spans with overlapping ones merged."""
        ends = np.maximum.accumulate(self.ends)
        first = np.concatenate([[True], self.starts[1:] > ends[:-1]])
        return Spans(self.starts[first], ends[np.concatenate([first[1:], [True]])])

    def integral(self, rate: StepFunction, at: Array) -> Array:
        """Return the integral of `rate` over the part of the spans before each `at`."""
        begun, whole = rate.until(self.starts), rate.until(self.ends)
        if not len(begun):
            return np.zeros_like(at)
        sums = np.concatenate([[0.0], np.cumsum(whole - begun)])
        number = np.searchsorted(self.starts, at, "right")
        last = np.clip(number - 1, 0, None)
        cut = np.where(at < self.ends[last], whole[last] - rate.until(at), 0.0)
        return sums[number] - np.where(number > 0, cut, 0.0)


def plan(events: Iterable[Mapping[str, Any]]) -> dict[str, StepFunction]:
    """Return the planned bytes/s of every link, from the player's events."""
    told: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event["event"] == "conditions":
            for link, fields in event["links"].items():
                if "rate_mbit" in fields:
                    at = (event["planned_s"], fields["rate_mbit"] * BYTES_PER_MBIT_S)
                    told.setdefault(link, []).append(at)
    return {link: StepFunction(*np.array(sorted(each)).T) for link, each in told.items()}


class Exchanges(NamedTuple):
    """Collectives of all ranks, in order of time: [ranks, collectives]."""

    starts: Array
    ends: Array
    sent_bytes: Array

    @classmethod
    def read(cls, path: Path) -> "Exchanges":
        """Read collectives at `path`, as many as the shortest rank has; CouldNotCheck if none."""
        try:
            lines = path.read_text().splitlines()[1:]
        except FileNotFoundError:
            raise CouldNotCheck(f"{path.name} is missing") from None
        rows = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.zeros((0, 5))
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        ranks = [rows[rows[:, 2] == rank] for rank in np.unique(rows[:, 2])]
        length = min(map(len, ranks), default=0)
        return cls(*(np.array([rank[:length, n] for rank in ranks]) for n in (0, 1, 3)))

    def __bool__(self) -> bool:
        return len(self.starts) > 1 and self.starts.size > 0

    def any(self, more_s: float) -> Spans:
        """Return spans in which any rank was in a collective, or up to `more_s` after it."""
        return Spans(self.starts.min(axis=0), self.ends.max(axis=0) + more_s).joined()

    def all(self, chosen: NDArray[np.bool_], hop_s: float) -> Spans:
        """Return spans in which all ranks were in a `chosen` collective, less its hops' latency."""
        hops = 2 * (len(self.starts) - 1)
        # ranks end one after the other, each when its own link is done
        start, end = self.starts.max(axis=0) + hops * hop_s, self.ends.mean(axis=0)
        chosen = chosen & (end > start)
        return Spans(start[chosen], end[chosen])

    def long(self, slowest: StepFunction, least_s: float) -> NDArray[np.bool_]:
        """Return a mask of collectives that carry `least_s` or more of the slowest link's bytes."""
        return self.sent_bytes.mean(axis=0) >= least_s * slowest.values(self.starts.max(axis=0))

    def bytes_until(self, chosen: NDArray[np.bool_], at: Array) -> Array:
        """Return the bytes that a rank sent in the `chosen` collectives before each `at`."""
        ends = np.maximum.accumulate(self.ends.mean(axis=0))
        sums = np.concatenate([[0.0], np.cumsum(self.sent_bytes.mean(axis=0) * chosen)])
        return sums[np.searchsorted(ends, at, "right")]


def judged(
    path: Path,
    events: Iterable[Mapping[str, Any]],
    rows: Mapping[str, list[Row]],
    dilation: float,
    bounded: tuple[bool, bool] = (True, True),
    burst_s: float = BURST_US / 1e6,
) -> Delivery:
    """Judge a run by its collectives.csv at `path` and its rows of links.csv, by link.

    `bounded` says whether the lower and the upper bound hold: no lower bound with delay or loss, to
    which TCP reacts freely, and no upper bound with planned competing flows. `burst_s` is what a
    shaper passes at once, in real seconds. Raise CouldNotCheck if records are missing.
    """
    rates = plan(events)
    if not rates:
        raise CouldNotCheck("events.jsonl has no conditions of any link")
    if sparse := sorted(link for link in rates if len(rows.get(link, ())) < 2):
        raise CouldNotCheck(f"links.csv has fewer than 2 rows of {', '.join(sparse)}")
    exchanges = Exchanges.read(path)
    if not exchanges:
        raise CouldNotCheck("collectives.csv has no collective of two ranks")
    slowest = StepFunction.slowest(rates.values())
    long = exchanges.long(slowest, LEAST_EXCHANGE_S / dilation)
    together = exchanges.all(long, HOP_S / dilation)
    edges = np.unique([float(row["time_s"]) for row in next(iter(rows.values()))])
    busy = together.integral(StepFunction(np.zeros(1), np.ones(1)), edges)
    delivery = Delivery(float(busy[-1] - busy[0]))
    is_enough = delivery.communicated_s * dilation >= LEAST_S
    if all(bounded):
        short = ~long if is_enough else np.ones_like(long)
        delivery = _pooled(delivery, exchanges, short, slowest, dilation)
    if not is_enough:
        return delivery
    carried = {link: _carried(rows[link], edges) for link in rates}
    chosen = _windows(busy, WINDOW_S / dilation)
    if bounded[0]:
        beside = exchanges.bytes_until(~long, edges)
        moved = {link: count - beside for link, count in carried.items()}
        delivery = _lower(delivery, moved, together.integral(slowest, edges), edges, chosen)
    if bounded[1]:
        anyone = exchanges.any(burst_s / dilation)
        delivery = _upper(delivery, carried, rates, anyone, edges, chosen)
    return delivery


def _pooled(
    delivery: Delivery,
    exchanges: Exchanges,
    short: NDArray[np.bool_],
    slowest: StepFunction,
    dilation: float,
) -> Delivery:
    """Compare the summed time of `short` exchanges with what plan and latency allow for it.

    One short exchange says little about its link. All of them together may take the time of their
    bytes at LEAST_POOLED of the plan, and a latency for each hop. The worst values are of a second.
    """
    starts, ends = exchanges.starts.max(axis=0)[short], exchanges.ends.mean(axis=0)[short]
    if not len(starts):
        return delivery
    hops_s = 2 * (len(exchanges.starts) - 1) * MOST_HOP_S / dilation
    planned = slowest.until(starts) + exchanges.sent_bytes.mean(axis=0)[short]
    sent_s = slowest.reached(planned) - starts
    begun = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    took_s = np.clip(ends - np.maximum(starts, begun), 0.0, None)  # overlaps count once
    allowed_s = sent_s / LEAST_POOLED + hops_s
    seconds = _windows(np.concatenate([[0.0], np.cumsum(took_s)]), WINDOW_S / dilation)[:-1]
    shares = np.add.reduceat(took_s, seconds) / np.add.reduceat(allowed_s, seconds)
    worst = int(np.argmax(shares))
    return delivery._replace(
        short_exchanges=len(starts),
        short_took=float(took_s.sum() / allowed_s.sum()),
        short_took_worst=float(shares[worst]),
        short_worst_s=float(starts[seconds[worst]]),
    )


def _carried(rows: list[Row], edges: Array) -> Array:
    """Return bytes until each of `edges`. Of samples at one time, the last counts."""
    times = np.array([float(row["time_s"]) for row in rows])
    counts = np.array([float(row["bytes"]) for row in rows])
    last = np.concatenate([times[1:] > times[:-1], [True]])
    return np.interp(edges, times[last], counts[last])


def _windows(busy: Array, length_s: float) -> NDArray[np.intp]:
    """Return indices into `busy` that are `length_s` or a little more of communication apart.

    `busy` is the time of communication up to each sample. The last window may be half as long.
    """
    found, begun = [0], busy[0]
    for number, now in enumerate(busy):
        if now - begun >= length_s:
            found.append(number)
            begun = now
    if len(found) == 1 or busy[-1] - begun > length_s / 2:
        found.append(len(busy) - 1)
    return np.array(found)


def _lower(
    found: Delivery, carried: Mapping[str, Array], planned: Array, edges: Array, chosen: Any
) -> Delivery:
    most = np.max([np.diff(each[chosen]) for each in carried.values()], axis=0)
    shares = most / np.diff(planned[chosen])
    whole = max(each[-1] - each[0] for each in carried.values())
    worst = int(np.argmin(shares))
    return found._replace(
        delivered=float(whole / (planned[-1] - planned[0])),
        delivered_worst=float(shares[worst]),
        worst_s=float(edges[chosen[worst]]),
    )


def _upper(
    found: Delivery,
    carried: Mapping[str, Array],
    rates: Mapping[str, StepFunction],
    anyone: Spans,
    edges: Array,
    chosen: Any,
) -> Delivery:
    shares, worst = {}, {}
    for link, each in carried.items():
        most = anyone.integral(rates[link], edges)
        shares[link] = (each[-1] - each[0]) / (most[-1] - most[0] + LARGEST_PACKET_BYTES)
        worst[link] = np.max(np.diff(each[chosen]) / (np.diff(most[chosen]) + LARGEST_PACKET_BYTES))
    link = max(shares, key=lambda name: shares[name])
    return found._replace(
        exceeded=float(shares[link]), exceeded_worst=float(max(worst.values())), exceeded_link=link
    )
