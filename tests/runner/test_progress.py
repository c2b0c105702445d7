"""The display of a run that goes on: its figures, plain lines, and what an interrupt says."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest

from harness.config.scales import composed
from harness.records.run_directory import Evaluation, LinkSample, Step, Table
from harness.reporting.analysis.terminal import console as report_console
from harness.runner import progress
from harness.runner.progress import Display, RunReading
from tests import records_by_hand as by_hand

RUN = composed(["steps=4", "emulation.compute=paced", "target.value=0.75"])[0].run()
ESCAPE = "\x1b"


def row(step: int, rank: int) -> Step:
    state = '{"h": 0.5, "rate": 1.0}'  # which has a comma in it
    told = dict(time_s=1.0 + step, loss=0.5, samples=8, density=1.0)
    return by_hand.step(step, rank, **told, controller=state)


def written(folder: Path, steps: int) -> Path:
    """A run directory with steps of two ranks, an evaluation, and links at half their rate."""
    folder.mkdir(exist_ok=True)
    tables = {name: Table(folder, name) for name in ("steps.csv", "evaluations.csv", "links.csv")}
    for table in tables.values():
        table.header()
    for step in range(steps):
        tables["steps.csv"].append(row(step, 0), row(step, 1))
        for link in ("up0", "up1"):
            tables["links.csv"].append(LinkSample(step, link, 8, 8, 500_000 * step, 0, 0))
    tables["evaluations.csv"].append(Evaluation(steps, steps, "accuracy", 0.625))
    return folder


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Make standard error a terminal, and yield a call that returns what was written to it."""
    ours, theirs = pty.openpty()
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    with open(theirs, "w", encoding="utf-8") as file, monkeypatch.context() as here:
        here.setattr(sys, "stderr", file)

        def content() -> str:
            file.write("end of the display\n")
            file.flush()
            found = b""
            while b"end of the display" not in found:
                found += os.read(ours, 65536)
            return found.decode()

        yield content
    os.close(ours)


def test_rows_count_once_when_another_file_takes_the_place_of_theirs(tmp_path: Path) -> None:
    """As on machine 0, which puts the rows of all machines between its own in the end."""
    reading = RunReading(written(tmp_path / "run", 3), RUN)
    reading.read()
    line = reading.line().partition("s left")[0]
    assert "step 3/4" in line and "up0 carries 4.0 of 8 Mbit/s" in line
    merged = written(tmp_path / "merged", 3)
    for name in ("steps.csv", "links.csv"):
        os.replace(merged / name, tmp_path / "run" / name)
    reading.read()
    assert reading.line().partition("s left")[0] == line


def test_a_replay_has_no_loss_and_a_run_its_target(tmp_path: Path) -> None:
    lines = {}
    for compute in ("paced", "replay"):
        emulation = replace(RUN.emulation, compute=compute)
        reading = RunReading(written(tmp_path / compute, 1), replace(RUN, emulation=emulation))
        reading.read()
        lines[compute] = reading.line()
    assert "step 1/4  loss 0.5000  accuracy 0.625 of 0.75  density 1" in lines["paced"]
    assert "loss" not in lines["replay"]


def test_a_first_stage_without_loss_shows_that_of_the_last(tmp_path: Path) -> None:
    table = Table(tmp_path, "steps.csv")
    table.header()
    table.append(replace(row(0, 1), loss=0.25), replace(row(0, 0), samples=0))
    reading = RunReading(tmp_path, RUN)
    reading.read()
    assert "loss 0.2500" in reading.line()


def followed(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show a run to its end, with a look and a new line at every call."""
    for name in ("LOOK_EVERY_S", "REDRAW_EVERY_S", "LINE_EVERY_S"):
        monkeypatch.setattr(progress, name, -1.0)
    display = Display(runs=3)
    display.next_run()
    with display.follow(run_dir, RUN) as shown:
        shown.update()


def test_a_terminal_shows_bar_quality_and_rates_in_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    with terminal(monkeypatch) as content:
        followed(written(tmp_path / "run", 3), monkeypatch)
        shown = content()
    assert ESCAPE in shown and "━" in shown
    for part in ("step 3/4", "accuracy 0.625 of 0.75", "up0 carries", "▅▅", "██", "run 1 of 3"):
        assert part in shown, part
    assert not progress._live


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_escape_reaches_a_terminal_that_wants_none(name, value, tmp_path, monkeypatch):
    with terminal(monkeypatch) as content:
        monkeypatch.setenv(name, value)
        followed(written(tmp_path / "run", 3), monkeypatch)
        shown = content()
    assert "step 3/4" in shown and ESCAPE not in shown


@pytest.mark.parametrize("escapes", [True, False])
def test_a_report_has_no_escape_under_no_color(escapes, monkeypatch):
    with terminal(monkeypatch) as content:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("NO_COLOR", "" if escapes else "1")
        monkeypatch.setattr(sys, "stdout", sys.stderr)
        report_console().print("title", style="bold")
        assert (ESCAPE in content()) == escapes


def test_a_pipe_has_a_line_at_once_then_one_a_period_and_no_escape(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes a pipe for a terminal
    monkeypatch.setattr(progress, "LINE_EVERY_S", float("inf"))
    display = Display(runs=2)
    for number in range(2):
        display.next_run()
        with display.follow(written(tmp_path / f"{number}", 3), RUN) as shown:
            shown.update()
    first = capsys.readouterr().err
    assert first.count("\n") == 1 and "step 3/4" in first and "1 of 2" in first
    followed(tmp_path / "0", monkeypatch)
    both = capsys.readouterr().err
    assert both.count("\n") == 2 and ESCAPE not in first + both


def test_a_removed_run_directory_is_noticed(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        followed(tmp_path / "run", monkeypatch)


INTERRUPTED = """
import sys, threading
from harness.runner import signals
from harness.runner.progress import Display
from tests.runner.test_progress import RUN, Path
signals.stop_in_order()
print("the answer", flush=True)
with Display().follow(Path(sys.argv[1]), RUN):
    print("ready", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        threading.Event().wait()  # stopping takes long
"""


@pytest.mark.parametrize("where", ["pipe", "terminal"])
def test_an_interrupt_says_so_at_once_and_the_next_ends_it(where: str, tmp_path: Path) -> None:
    run_dir = written(tmp_path / "run", 3)
    ours, theirs = pty.openpty() if where == "terminal" else os.pipe()
    command = [sys.executable, "-c", INTERRUPTED, str(run_dir)]
    variables = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as output:
        said = until(output, b"ready")
        process.send_signal(signal.SIGINT)
        said += until(output, b"again: at once")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait() == 128 + signal.SIGINT
    assert b"the answer" in said and b"stopping in order" in said
    assert (ESCAPE.encode() in said) == (where == "terminal")


def until(output: TextIO, end: bytes) -> bytes:
    """Read to `end`; fail if the output closes before."""
    found = b""
    while end not in found:
        more = output.read(4096)
        assert more, found
        found += more
    return found


def test_training_processes_do_not_import_the_display() -> None:
    program = (
        "import sys, harness.runner.supervise, harness.runner.launch\n"
        "import harness.engine.training.worker, harness.runner.fork_server\n"
        "print([name for name in sys.modules if name in ('rich', 'harness.runner.progress')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
