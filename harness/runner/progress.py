"""Show the progress of a command's runs: live on a terminal, as plain lines in a pipe or log.

A command opens one `Display` and gives it to `run.perform`. The display only reads files that a run
writes anyway. Training processes do not import this module.
"""

import csv
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Columns
from rich.text import Text

from harness.clock import minutes_of
from harness.config.run import Run
from harness.config.settings import Settings
from harness.records import printable

LINE_EVERY_S = 10.0  # between plain lines
REDRAW_EVERY_S = 0.5  # on a terminal
LOOK_EVERY_S = 0.1  # between checks that the run directory exists
SAMPLES = 24  # of a link, in a sparkline
BLOCKS = "▁▂▃▄▅▆▇█"

_live: list[Live] = []  # the display on the terminal, if there is one


def erase() -> None:
    """Remove the live display from the terminal for good, for a message that must be seen."""
    while _live:
        with suppress(OSError):
            _live.pop().stop()


class TimeLeft(Protocol):
    """Estimate of the time that a command's runs take; it is corrected as each ends."""

    def begin(self) -> None: ...

    def ended(self, settings: Settings) -> None: ...

    def left_s(self) -> float: ...


class Display:
    """Display of one command: its current run, and the time left for that run and for all.

    On a terminal the current run has a block that is redrawn in place. Otherwise, and if NO_COLOR
    is set, plain lines without escape sequences go to standard error: one at once, then one every
    LINE_EVERY_S. Without `estimate` the time left for all runs is not shown.
    """

    def __init__(self, runs: int = 1, estimate: TimeLeft | None = None) -> None:
        self._runs, self._estimate, self._number = runs, estimate, 0
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._printed = -math.inf  # time of the last plain line
        self._looked = self._drawn = 0.0
        self._run: RunReading | None = None

    def next_run(self) -> None:
        """Count one more run of the command as started."""
        self._number += 1
        if self._estimate and self._number == 1:
            self._estimate.begin()

    def ended(self, settings: Settings) -> None:
        """Note that the run of `settings` ended now."""
        if self._estimate:
            self._estimate.ended(settings)

    def place(self) -> str:
        """Return the position such as `3 of 15, about 12 min left`; "" for a single run."""
        if self._runs < 2:
            return ""
        left_s = self._estimate.left_s() if self._estimate else 0.0
        if left_s and self._run is not None:  # the estimate includes all of this run
            left_s = max(left_s - self._run.spent_s(), self._run.left_s() or 0.0)
        left = f", about {minutes_of(left_s)} left" if left_s else ""
        return f"{self._number} of {self._runs}{left}"

    @contextmanager
    def follow(self, run_dir: Path, run: Run) -> Iterator[Self]:
        """Context manager: show the run in `run_dir` at each `update`, and erase it at the end."""
        self._run = RunReading(run_dir, run)
        console = self._console
        on_terminal = console.is_terminal and not console.is_dumb_terminal and _stderr_is_terminal()
        if on_terminal and not os.environ.get("NO_COLOR"):
            live = Live(console=console, transient=True, auto_refresh=False)
            with suppress(OSError):
                live.start()
                _live.append(live)
                self._draw()
        else:
            self._print()
        try:
            yield self
        finally:
            self._run = None
            erase()

    def update(self) -> None:
        """Show new results cheaply, after any step; FileNotFoundError if the run was removed."""
        now = time.monotonic()
        if self._run is None or now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        self._run.require()
        with suppress(OSError):  # the terminal may be gone
            if _live and now - self._drawn > REDRAW_EVERY_S:
                self._draw()
            elif not _live and now - self._printed > LINE_EVERY_S:
                self._print()

    def _draw(self) -> None:
        assert self._run is not None
        self._drawn = time.monotonic()
        self._read(self._run)
        ascii_only = self._console.options.ascii_only
        _live[0].update(self._run.block(self.place(), ascii_only), refresh=True)

    def _read(self, reading: "RunReading") -> None:
        """Read the run's files; a malformed row is left out and never fails the run."""
        with suppress(OSError, ValueError, LookupError):
            reading.read()

    def _print(self) -> None:
        """Print a plain line if one is due."""
        if time.monotonic() - self._printed < LINE_EVERY_S or self._run is None:
            return
        self._printed = time.monotonic()
        self._read(self._run)
        line = "  ".join(filter(None, [self._run.line(), self.place()]))
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def _stderr_is_terminal() -> bool:
    """Return False also for a pipe that rich takes for a terminal because of FORCE_COLOR."""
    try:
        return sys.stderr.isatty() and os.environ.get("TTY_COMPATIBLE") != "0"
    except ValueError:  # it was closed
        return False


class RunReading:
    """Progress of one run, read from its files as they grow.

    Steps are those of rank 0, or of the first rank on this machine. The link shown is the first in
    links.csv.
    """

    def __init__(self, run_dir: Path, run: Run) -> None:
        self._label = f"{run.label} seed {run.seed}"
        if run.network_seed != run.seed:
            self._label += f" network {run.network_seed}"
        self._label = printable.line(self._label)
        self._steps = run.steps
        self._target = run.target
        self._trains = not run.emulation.is_replay  # else there is no loss
        self._steps_table = _GrowingTable(run_dir / "steps.csv")
        self._evaluations = _GrowingTable(run_dir / "evaluations.csv")
        self._links = _GrowingTable(run_dir / "links.csv")
        self._step: dict[str, str] = {}  # last row of the followed rank
        self._loss = "nan"  # of that rank, or of any if it has none (a pipeline's first stage)
        self._quality: dict[str, float] = {}  # by metric
        self._link = ""
        self._sample: tuple[float, float] | None = None  # time and bytes of the link's last row
        self._carried_mbit: deque[float] = deque(maxlen=SAMPLES)
        self._planned_mbit: deque[float] = deque(maxlen=SAMPLES)
        self._began = time.monotonic()
        self._first: tuple[float, int] | None = None  # time and steps done at the first rows

    def require(self) -> None:
        """Raise FileNotFoundError if the run directory was removed."""
        self._steps_table.path.stat()

    def spent_s(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._began

    def left_s(self) -> float | None:
        """Return the seconds until the last step at the pace so far; None if unknown."""
        if self._first is None:
            return None
        began, first = self._first
        done = int(self._step["step"]) + 1 - first
        pace_s = (time.monotonic() - began) / done if done else math.inf
        left_s = pace_s * (self._steps - first - done)
        return left_s if left_s < math.inf else None

    def read(self) -> None:
        """Read all rows that were written since the last call."""
        for row in map(self._evaluations.row, self._evaluations.new_lines()):
            self._quality[row["metric"]] = float(row["value"])
        lines = self._steps_table.new_lines()
        for rank in ("0", self._step.get("rank"), _second_field(lines[0]) if lines else None):
            of_rank = (line for line in reversed(lines) if _second_field(line) == rank)
            if (last := next(of_rank, None)) is not None:
                self._step = self._steps_table.row(last)
                break
        if lines:
            self._first = self._first or (time.monotonic(), self._done())
            with_samples = map(self._steps_table.row, reversed(lines))
            if self._step["samples"] == "0":
                self._loss = next((r["loss"] for r in with_samples if r["samples"] != "0"), "nan")
            else:
                self._loss = self._step["loss"]
        for line in self._links.new_lines():
            self._link = self._link or _second_field(line)
            if _second_field(line) == self._link:
                self._take_sample(self._links.row(line))

    def _take_sample(self, row: dict[str, str]) -> None:
        now_s, now_bytes = float(row["time_s"]), float(row["bytes"])
        before_s, before_bytes = self._sample or (now_s, now_bytes)
        if now_s > before_s:
            self._carried_mbit.append((now_bytes - before_bytes) * 8e-6 / (now_s - before_s))
            self._planned_mbit.append(float(row["planned_mbit"]))
        if now_s >= before_s:
            self._sample = now_s, now_bytes

    def _done(self) -> int:
        return int(self._step["step"]) + 1 if self._step else 0

    def _state(self) -> list[str]:
        """Return texts for loss, quality against the target, and density, if the run has them."""
        known = []
        if self._trains and self._step:
            known.append(f"loss {float(self._loss):.4f}")
        metric = self._target.metric or next(iter(self._quality), "")
        if metric in self._quality:
            goal = f" of {self._target.value:g}" if self._target.value is not None else ""
            value = self._quality[metric]
            known.append(f"{printable.line(metric).replace('_', ' ')} {value:.3g}{goal}")
        if self._step.get("density", "nan") != "nan":  # a local step may exchange nothing
            known.append(f"density {float(self._step['density']):.4g}")
        return known

    def _left(self) -> str:
        left_s = self.left_s()
        return f"{left_s:.0f} s left" if left_s is not None else ""

    def line(self) -> str:
        """Return the run's progress in one line."""
        if not self._step:
            return f"{self._label}: starting ({self.spent_s():.0f} s)"
        parts = [f"step {self._done()}/{self._steps}", *self._state()]
        if self._carried_mbit:
            carried, planned = self._carried_mbit[-1], self._planned_mbit[-1]
            parts.append(f"{self._link} carries {carried:.1f} of {planned:g} Mbit/s")
        parts += [f"clock {float(self._step['time_s']):.1f} s", self._left()]
        return f"{self._label}: {'  '.join(filter(None, parts))}"

    def block(self, place: str, ascii_only: bool) -> Group:
        """Return the run's progress as a block for a terminal.

        `place` is its position in the sweep, such as `3 of 15`; "" shows none.
        """
        done, total = self._done(), self._steps
        bar = Columns.grid(padding=(0, 2, 0, 0))
        step = Text(f"step {done}/{total}" if self._step else "starting")
        progress = ProgressBar(total=total, completed=done, width=30)
        bar.add_row(
            progress, step, Text(self._left() or f"{self.spent_s():.0f} s so far", style="dim")
        )
        label = Text(self._label, style="bold", no_wrap=True, overflow="ellipsis")
        lines: list[RenderableType] = [label, bar]
        lines.append(Text("  ".join(self._state()), no_wrap=True, overflow="ellipsis"))
        if self._carried_mbit:
            rates = Columns.grid(padding=(0, 2, 0, 0))
            most = max(*self._carried_mbit, *self._planned_mbit)
            for name, rate in ("carries", self._carried_mbit), ("planned", self._planned_mbit):
                drawn = "" if ascii_only else sparkline(rate, most)
                rates.add_row(f"{self._link} {name}", Text(drawn, style="cyan"),
                              f"{rate[-1]:.1f} Mbit/s")  # fmt: skip
            lines.append(rates)
        return Group(*lines, *([Text(f"run {place}", style="dim")] if place else []))


def sparkline(values: Iterable[float], most: float) -> str:
    """Return a block character for each of `values`, which lie between 0 and `most`."""
    scale = (len(BLOCKS) - 1) / most if most > 0 else 0.0
    return "".join(BLOCKS[round(value * scale)] for value in values)


def _second_field(line: str) -> str:
    return line.split(",", 2)[1]


class _GrowingTable:
    """A CSV file that another process appends to; reading continues at the last position."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode: int | None = None
        self._offset = 0
        self._names: list[str] = []

    def new_lines(self) -> list[str]:
        """Return new complete rows, or all rows if another file has replaced this one.

        When a run over several machines ends, files with the rows of all machines replace these.
        """
        try:
            file = self.path.open()
        except FileNotFoundError:
            return []
        with file:
            if (inode := os.fstat(file.fileno()).st_ino) != self._inode:
                self._inode, self._offset, self._names = inode, 0, []
            file.seek(self._offset)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self._offset += len(text.encode())
        lines = text.splitlines()
        if lines and not self._names:
            self._names = lines.pop(0).split(",")
        return lines

    def row(self, line: str) -> dict[str, str]:
        """Return the fields of `line` by column."""
        return dict(zip(self._names, next(csv.reader([line])), strict=False))
