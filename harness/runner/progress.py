"""Live progress of a run in the terminal: step, loss, density, goodput, time left."""

import os
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.config.run import Run
from harness.records import columns
from harness.records.run_directory import Step

COLUMNS = (*columns.recorded(Step),)

LINE_EVERY_S = 10.0  # without a terminal: one plain line
LOOK_EVERY_S = 0.1


class Progress:
    """Follows the rows of one rank in steps.csv: rank 0, or the first that this machine has."""

    def __init__(self, run_dir: Path, run: Run) -> None:
        self._path = run_dir / "steps.csv"
        self._label = f"{run.label} seed {run.seed}"
        if run.network_seed != run.seed:
            self._label += f" network {run.network_seed}"
        self._steps = run.steps  # None when the run is given in epochs
        self._trains = not run.emulation.is_replay  # else there is no loss
        self._file: int | None = None  # which one was read, up to the offset
        self._offset = 0
        self._rank: str | None = None
        self._last: dict[str, str] = {}
        self._loss = "nan"  # of that rank; of any where it has none, as a pipeline's first stage
        self._bytes = 0
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._began = self._printed = self._updated = time.monotonic()

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def update(self) -> None:
        """Read what has been written since and show it, unless the terminal is gone."""
        self._read()
        with suppress(OSError):
            self._show()

    def now_and_then(self) -> None:
        """Update, unless that was done a moment ago; for who comes by all the time."""
        if time.monotonic() - self._updated > LOOK_EVERY_S:
            self.update()
            self._updated = time.monotonic()

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(Text(self._line()))
        elif time.monotonic() - self._printed > LINE_EVERY_S:
            self._printed = time.monotonic()
            self._console.print(self._line(), highlight=False, soft_wrap=True)

    def _read(self) -> None:
        with self._path.open() as file:
            if (number := os.fstat(file.fileno()).st_ino) != self._file:
                # Another file: at the end, machine 0 has the rows of all machines.
                self._file, self._offset, self._bytes = number, 0, 0
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind("\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            if self._says_nothing_new(line):
                continue
            row = dict(zip(COLUMNS, line.split(","), strict=False))
            if row["rank"] == "rank":
                continue  # the header
            if self._rank in (None, row["rank"]) or row["rank"] == "0":
                self._rank = row["rank"]
                self._last = row
                self._bytes += int(row["received_bytes"])
            if row["samples"] != "0" and (row is self._last or self._last["samples"] == "0"):
                self._loss = row["loss"]

    def _says_nothing_new(self, line: str) -> bool:
        """Rank 0 tells all that is shown, and this is another's row: of thousands, nearly every."""
        told = self._rank == "0" and self._last["samples"] != "0"
        return told and line.split(",", 2)[1] != "0"

    def _line(self) -> str:
        if not self._last:
            return f"{self._label}: starting ({time.monotonic() - self._began:.0f} s)"
        row, done = self._last, int(self._last["step"]) + 1
        time_s = float(row["time_s"])
        goodput = self._bytes * 8e-6 / time_s if time_s else 0.0
        loss = f"loss {float(self._loss):.4f}  " if self._trains else ""
        sends = row["density"] != "nan"  # a local step may exchange nothing
        density = f"density {float(row['density']):.4f}  " if sends else ""
        return (
            f"{self._label}: step {done}/{self._steps or '?'}  {loss}{density}"
            f"goodput {goodput:.1f} Mbit/s  clock {time_s:.1f} s  {self._left(done)}"
        )

    def _left(self, done: int) -> str:
        if not self._steps:
            return ""
        spent = time.monotonic() - self._began
        return f"ETA {spent / done * (self._steps - done):.0f} s"
