"""Steps that a foreign command reports, and the bytes of its links between them."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

from harness.around.counter import StepCounter
from harness.around.settings import OF_A_STEP, Command
from harness.around.values import values, written_for
from harness.clock import Clock
from harness.emulation.network import Network
from harness.records.run_directory import Evaluation, Step, Table

LOOK_S = 0.25  # real, between looks at what links have carried
MOST_SHOWN = 100  # characters of a line
TOLD_BEFORE = (
    "they tell of steps that lines before them told of; print one line a step, and name the epoch "
    "by a group `epoch` if steps are counted anew in each"
)
EARLY = "they came before the first byte crossed a link; write start=PATTERN for another beginning"

UNKNOWN = (  # columns of a step that only the trainer could tell
    "backward_s", "overlap_window_s", "compress_s", "comm_s", "exposed_s", "density", "compute_s",
    "compute_before_first_bucket_s",
)  # fmt: skip


class ToldStep(NamedTuple):
    """One step as reported by lines of output. Times are emulated seconds."""

    time_s: float  # by the trainer's own clock, if it has told its time
    came_s: float  # when its first line came
    step: int
    loss: float
    samples: int  # of all nodes, since the step before
    steps: int  # since the step before, which is more than 1 where not every step has a line


@dataclass
class _Row:
    """A step whose lines may still arrive."""

    step: int
    came_s: float
    values: dict[str, float] = field(default_factory=dict)  # by group


class ToldSteps:
    """Steps and evaluations of node 0, from lines that match the command's pattern, in order.

    Every matching line counts or is in `uncounted`: reason, number of lines, and the first of them.
    `processes` of the node may print each line once.
    """

    def __init__(self, command: Command, processes: int = 1) -> None:
        self.command = command
        self.pattern = None if command.metrics is None else re.compile(command.metrics)
        self._samples, self._processes = command.samples or 1, processes
        groups = set(self.pattern.groupindex) if self.pattern else set()
        kinds = {"loss", "time", "samples"} & groups, {"step"} & groups, groups
        self._of_a_step = next(filter(None, kinds), set())  # other groups alone evaluate the last
        self._rows: dict[int, _Row] = {}  # by step
        self._last = -1  # of them
        self._counter = StepCounter()
        self._times_told: Counter[tuple[int, frozenset[str]]] = Counter()
        self._again = (0, "")  # lines that told nothing new of their step, and the first of them
        self.evaluations: list[Evaluation] = []
        self.uncounted: dict[str, tuple[int, str]] = {}

    def take(self, line: str, now_s: float) -> bool:
        """Count `line`, which came at `now_s`. Return True if it reported a step."""
        told = False
        try:
            for found in self._readings(line):
                told |= self.add(found, now_s, line, self._counter)
        except ValueError as error:
            self.leave_out(str(error), line)
        return told

    def _readings(self, line: str) -> Iterator[dict[str, float]]:
        """Yield the values of all matches in `line`. They are of one step unless `step` repeats.

        Raise ValueError if a group's text is not a number, or if the pattern cannot hold a number.
        """
        found: dict[str, float] = {}
        written = self.pattern and written_for(self.pattern, line)
        if written and not written.is_same:
            raise ValueError("the pattern has no place for one of their numbers")
        for match in self.pattern.finditer(written.line) if self.pattern and written else ():
            more = values(match)
            if "step" in more and "step" in found:
                yield found
                found = {}
            found = more | found
        if found:
            yield found

    def matches(self, line: str) -> bool:
        """Return True if `line` matches the pattern, also with its numbers written differently."""
        return self.pattern is not None and written_for(self.pattern, line) is not None

    def leave_out(self, why: str, line: str, lines: int = 1) -> None:
        """Note that `lines` lines, beginning with `line`, match and do not count."""
        before, first = self.uncounted.get(why, (0, line.strip()[:MOST_SHOWN]))
        self.uncounted[why] = before + lines, first

    def add(self, found: dict[str, float], came_s: float, line: str, counter: StepCounter) -> bool:
        """Count the values of one reading, with steps by `counter`. Return True for a new step.

        A reading without `step` fills gaps of the last step, or is the next step.
        """
        metrics = {name: value for name, value in found.items() if name not in OF_A_STEP}
        evaluates = bool(metrics) and not self._of_a_step & set(found)
        if "epoch" in found:
            if not evaluates and counter.is_before(found["epoch"]):
                self.leave_out(TOLD_BEFORE, line)
                return False
            counter.enter(found["epoch"])
        if set(found) == {"epoch"}:
            return False
        step = self._step_of(found, evaluates, counter)
        if step is None:
            self.leave_out(TOLD_BEFORE, line)
            return False
        if evaluates:  # the model of now, whatever step the line names
            step = max(step, self._last)
        is_new = step >= 0 and step not in self._rows
        row = self._rows.setdefault(step, _Row(step, came_s)) if step >= 0 else _Row(step, came_s)
        self._last = max(self._last, step)
        if not evaluates and not self._tells_more(row, found, line):
            self.leave_out(TOLD_BEFORE, line)
            return False
        for name in metrics if evaluates else set(metrics) - set(row.values):
            self.evaluations.append(Evaluation(step + 1, came_s, name, metrics[name]))
        row.values = found | row.values
        return is_new

    def _step_of(
        self, found: dict[str, float], evaluates: bool, counter: StepCounter
    ) -> int | None:
        """Return the step number of a reading, -1 before the first.

        Return None if its counter falls to a step that was reported before.
        """
        last = self._rows.get(counter.number)
        if "step" in found:
            count = int(found["step"])
            if counter.is_last(count) or (evaluates and counter.has_passed(count)):
                return counter.number
            return counter.advance(count)
        if evaluates or (last and not set(found) & set(last.values)):
            return counter.number
        return counter.advance(counter.next_count())

    def _tells_more(self, row: _Row, found: dict[str, float], line: str) -> bool:
        """Count this report. Return False if all processes have already reported all of `found`.

        Also count a repetition by another process of the node, and keep the first such `line`.
        """
        kind = row.step, frozenset(found)
        self._times_told[kind] += 1
        if set(found) - set(row.values):
            return True
        if self._times_told[kind] > self._processes:
            return False
        self._again = self._again[0] + 1, self._again[1] or line
        return True

    def finish(self, ended_s: float, dilation: float) -> list[ToldStep]:
        """Return all steps in order, when no more lines come. The clock stands at `ended_s`.

        A step's time is the trainer's own if lines state it, aligned by the line that came soonest
        after its stated time. Otherwise it is when the step's first line came.
        """
        if self.pattern is None:
            return [ToldStep(ended_s, ended_s, 0, nan, self._samples, 1)]
        self._require_alike()
        rows = [self._rows[step] for step in sorted(self._rows)]
        found: list[ToldStep] = []
        for number, (row, time_s, came_s) in enumerate(
            zip(rows, *_times(rows, dilation), strict=True)
        ):
            if number:
                steps = row.step - rows[number - 1].step
            else:  # a trainer that goes on from step 500 has made one step of its own by then
                steps = min([row.step + 1, *(after.step - row.step for after in rows[1:2])])
            samples = int(row.values.get("samples", self._samples * steps))
            loss = row.values.get("loss", nan)
            found.append(ToldStep(time_s, came_s, row.step, loss, samples, steps))
        self._put_on_the_clock_of(found)
        return found

    def _put_on_the_clock_of(self, steps: list[ToldStep]) -> None:
        """Convert the times of evaluations from the command's clock to that of `steps`.

        An evaluation counts from the last step before it. Earlier ones are unchanged.
        """
        came_s = [step.came_s for step in steps]
        for number, each in enumerate(self.evaluations):
            if after := bisect_right(came_s, each.time_s):
                since_s = each.time_s - came_s[after - 1]
                time_s = steps[after - 1].time_s + since_s
                self.evaluations[number] = each._replace(time_s=time_s)

    def _require_alike(self) -> None:
        """Leave out repeated lines, unless all steps were reported equally often.

        Equal repetition means that each process of the node prints every line. The first and last
        step do not count, since some of their lines may be missing.
        """
        ends = min(self._rows, default=0), max(self._rows, default=0)
        often: dict[frozenset[str], set[int]] = defaultdict(set)
        for (step, kind), times in self._times_told.items():
            if step not in ends:
                often[kind].add(times)
        again, line = self._again
        if again and any(len(times) > 1 for times in often.values()):
            self.leave_out(TOLD_BEFORE, line, again)


def _times(rows: list[_Row], dilation: float) -> tuple[list[float], list[float]]:
    """Return each row's time, by the trainer's own clock if it states one, and its arrival.

    Arrival times never fall. Stated times may fall, or begin below 0.
    """
    own_s = [row.values.get("time", nan) / dilation for row in rows]
    delays_s = [row.came_s - own for row, own in zip(rows, own_s, strict=True) if isfinite(own)]
    offset_s = min(delays_s, default=0.0)
    times_s, came_s = [0.0], [0.0]
    for row, own in zip(rows, own_s, strict=True):
        came_s.append(max(came_s[-1], row.came_s))
        since_s = came_s[-1] - came_s[-2]
        times_s.append(offset_s + own if isfinite(own) else times_s[-1] + since_s)
    return times_s[1:], came_s[1:]


class LinkTraffic:
    """Bytes through every link over time, since this object was made."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network, self._clock = network, clock
        self._before = network.bytes()
        self._times: list[float] = []
        self._passed: list[dict[str, int]] = []

    def passed(self) -> dict[str, int]:
        """Return bytes since the beginning, by link."""
        return {link: n - self._before[link] for link, n in self._network.bytes().items()}

    def look(self, now_s: float) -> None:
        """Record the bytes so far at `now_s` on the clock."""
        self._times.append(now_s)
        self._passed.append(self.passed())

    def look_if_time(self) -> None:
        now_s = self._clock.time_s() or 0.0
        if now_s - self._times[-1] >= LOOK_S / self._clock.dilation:
            self.look(now_s)

    def at(self, time_s: float, link: str) -> float:
        """Return the bytes through `link` by `time_s`, interpolated between two records."""
        if not self._times:
            return 0.0
        after = min(bisect_left(self._times, time_s), len(self._times) - 1)
        before = max(0, after - 1)
        low, high = (self._passed[n].get(link, 0) for n in (before, after))
        width = self._times[after] - self._times[before]
        share = (time_s - self._times[before]) / width if width > 0 else 1.0
        return low + (high - low) * min(1.0, max(0.0, share))


def write(
    run_dir: Path,
    told: ToldSteps,
    steps: list[ToldStep],
    traffic: LinkTraffic,
    nodes: int,
    own: str,
) -> None:
    """Write steps.csv, a row per step and node with its link's bytes, and evaluations.csv.

    The other columns of a step are unknown. `own` is the command's metric. If that is the loss,
    every step is an evaluation.
    """
    table, evaluations = Table(run_dir, "steps.csv"), list(told.evaluations)
    carried: dict[str, int] = {}
    for step in steps:
        if own == "loss" and isfinite(step.loss):
            evaluations.append(Evaluation(step.step + 1, step.time_s, "loss", step.loss))
        for node in range(nodes):
            moved = {}
            for way in ("up", "down"):
                link = f"{way}{node}"
                upto = round(traffic.at(step.came_s, link))
                moved[way] = upto - carried.get(link, 0)
                carried[link] = upto
            table.append(_row(step, node, nodes, moved))
    evaluations = [each._replace(time_s=max(0.0, each.time_s)) for each in evaluations]
    evaluations.sort(key=lambda each: each.time_s)
    Table(run_dir, "evaluations.csv").append(*evaluations)


def _row(told: ToldStep, node: int, nodes: int, moved: dict[str, int]) -> Step:
    unknown: dict[str, Any] = dict.fromkeys(UNKNOWN, nan)
    return Step(
        step=told.step,
        time_s=max(0.0, told.time_s),
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
