"""What a foreign command told of its steps, and the bytes of its links between them."""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

from harness.around.settings import OF_A_STEP, Command
from harness.clock import Clock
from harness.emulation.network import Network
from harness.records.run_directory import Evaluation, Step, Table

LOOK_S = 0.25  # real, between looks at what links have carried

UNKNOWN = (  # columns of a step that only the trainer could tell
    "backward_s", "overlap_window_s", "compress_s", "comm_s", "exposed_s", "density", "compute_s",
    "compute_before_first_bucket_s",
)  # fmt: skip


class ToldStep(NamedTuple):
    """One step as a line of output told it; times are emulated seconds."""

    time_s: float
    step: int
    loss: float
    samples: int  # of all nodes, since the reading before
    metrics: dict[str, float]


@dataclass
class ToldSteps:
    """Lines of node 0 that match the command's pattern, in order; each step once."""

    command: Command
    all: list[ToldStep] = field(default_factory=list)
    lost: int = 0  # lines that matched and had no numbers
    _offset_s: float | None = None  # from the command's time to the clock's

    def take(self, text: str, now_s: float, dilation: float) -> bool:
        """Note what a line tells that came at `now_s`; True where it told of a step."""
        found = re.search(self.command.metrics, text) if self.command.metrics else None
        if found is None:
            return False
        told = numbers(found)
        if told is None:
            self.lost += 1
            return False
        last = self.all[-1].step if self.all else -1
        alone = set(told) <= set(metrics_of(told))  # a metric is of the step before
        step = int(told.get("step", last if alone else last + 1))
        if step < last or (step == last and not metrics_of(told)):
            return False  # another of this node's processes
        time_s = now_s
        if "time" in told:
            if self._offset_s is None:
                self._offset_s = now_s - told["time"] / dilation
            time_s = self._offset_s + told["time"] / dilation
        per_step = (self.command.samples or 1) * (step - last)
        samples = int(told.get("samples", per_step)) if step > last else 0
        self.all.append(ToldStep(time_s, step, told.get("loss", nan), samples, metrics_of(told)))
        return True

    def close(self, now_s: float) -> None:
        """Without a pattern the whole is one step, which ends now."""
        if self.command.metrics is None:
            self.all.append(ToldStep(now_s, 0, nan, self.command.samples or 1, {}))


def numbers(found: re.Match[str]) -> dict[str, float] | None:
    """Values of the groups that took part; None where one is no number, or cannot be counted."""
    try:
        told = {name: float(value) for name, value in found.groupdict().items() if value}
    except ValueError:
        return None
    counts = (told.get(name, 0.0) for name in ("step", "time", "samples"))
    return told if all(map(isfinite, counts)) else None


def metrics_of(told: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in told.items() if name not in OF_A_STEP}


class LinkTraffic:
    """Bytes through every link over time, from when it was made on."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network, self._clock = network, clock
        self._before = network.bytes()
        self._times: list[float] = []
        self._passed: list[dict[str, int]] = []

    def passed(self) -> dict[str, int]:
        """Bytes since the beginning, by link."""
        return {link: n - self._before[link] for link, n in self._network.bytes().items()}

    def look(self, now_s: float) -> None:
        """Note what has passed by now, on the clock."""
        self._times.append(now_s)
        self._passed.append(self.passed())

    def look_if_time(self) -> None:
        now_s = self._clock.time_s() or 0.0
        if now_s - self._times[-1] >= LOOK_S / self._clock.dilation:
            self.look(now_s)

    def at(self, time_s: float, link: str) -> float:
        """Bytes that had passed `link` at `time_s`, between two looks by a straight line."""
        if not self._times:
            return 0.0
        after = min(bisect_left(self._times, time_s), len(self._times) - 1)
        before = max(0, after - 1)
        low, high = (self._passed[n].get(link, 0) for n in (before, after))
        width = self._times[after] - self._times[before]
        share = (time_s - self._times[before]) / width if width > 0 else 1.0
        return low + (high - low) * min(1.0, max(0.0, share))


def write(
    run_dir: Path, readings: list[ToldStep], traffic: LinkTraffic, nodes: int, own: str
) -> None:
    """steps.csv: a row per step and node, in each what its link carried; evaluations.csv.

    Of computation and density nothing is known. `own` is the command's metric; where that is the
    loss, every step evaluates it.
    """
    steps, evaluations = Table(run_dir, "steps.csv"), Table(run_dir, "evaluations.csv")
    carried: dict[str, int] = {}
    last = -1
    for told in readings:
        metrics = told.metrics
        if own == "loss" and isfinite(told.loss):
            metrics = metrics | {"loss": told.loss}
        for name, value in metrics.items():
            evaluations.append(Evaluation(told.step + 1, told.time_s, name, value))
        if told.step == last:
            continue
        last = told.step
        for node in range(nodes):
            moved = {}
            for way in ("up", "down"):
                link = f"{way}{node}"
                upto = round(traffic.at(told.time_s, link))
                moved[way] = upto - carried.get(link, 0)
                carried[link] = upto
            steps.append(_step(told, node, nodes, moved))


def _step(told: ToldStep, node: int, nodes: int, moved: dict[str, int]) -> Step:
    unknown: dict[str, Any] = dict.fromkeys(UNKNOWN, nan)
    return Step(
        step=told.step,
        time_s=told.time_s,
        rank=node,
        loss=told.loss if node == 0 else nan,
        samples=told.samples if node == 0 else 0,
        workers=nodes,
        sent_bytes=moved["up"],
        received_bytes=moved["down"],
        dense_bytes=0,
        controller="{}",
        **unknown,
    )
