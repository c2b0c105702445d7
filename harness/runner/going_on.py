"""Resuming an interrupted run in virtual time from its last checkpoint.

Repeating its command resumes it, as a scheduler that requeues a job does: in its own directory, bit
for bit as if it had not ended. What it wrote after the checkpoint is removed first. A run over
packets starts over, since the proof of its links belongs to one process. So does one with a
parameter server, whose trainers are not between two steps at once, or with a watch.
"""

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.config.run import Run
from harness.config.typed import BadSetting
from harness.engine.training import resume
from harness.engine.training.resume import Resumed
from harness.records import checkpoint, environment, status
from harness.records.columns import recorded
from harness.records.outputs import OutputFolder, first_link
from harness.records.run_directory import CURVE, SIMULATED_TABLES, TABLES, read_events, read_json

SAME = ("git", "versions", "cpu", "cores", "kernels")  # of environment.json: bits depend on them


def found(run_dir: Path, run: Run, rerun: bool) -> Resumed | None:
    """Return the checkpoint in `run_dir` that `run` resumes from, or None to start over.

    Print why an existing checkpoint cannot be used. Raise BadSetting if the run would resume and
    its directory contains a link, through which it would write elsewhere.
    """
    wanted = run.network.in_process and not run.parallel.servers and run.watch is None
    kept = run.checkpoint_every and checkpoint.digest_of(str(run_dir))
    if rerun or not wanted or not kept or status.state(run_dir) != "interrupted":
        return None
    if linked := first_link(run_dir):
        begin_anew = "remove it, or begin anew with rerun=true"
        raise BadSetting(f"results: a run goes on among files of its own, got {linked}, which is a "
                         f"link, a device or a pipe: {begin_anew}")  # fmt: skip
    try:
        begin = resume.resumed(str(run_dir))
        assert begin is not None
        _check(run_dir, run, begin)
    except (OSError, ValueError) as error:
        print(f"{run_dir}: {error}: it begins anew", file=sys.stderr)
        return None
    return begin


def _check(run_dir: Path, run: Run, begin: Resumed) -> None:
    resume.check(run, begin, run.workers)
    then = begin.manifest.device
    if then != (now := run.device_type(run.workers)):
        raise ValueError(f"{begin.folder} was trained on {then}, and here device is {now}")
    was = read_json(run_dir / "environment.json") or {}
    here: dict[str, Any] = json.loads(json.dumps(environment.describe(), default=str))
    for name in SAME:
        if was.get(name) != here[name]:
            made = f"{begin.folder} was made with {name} {was.get(name)}"
            raise ValueError(f"{made}, and here it is {here[name]}")
    for name, row in TABLES.items():
        if _header(run_dir / name) != [*recorded(row)]:
            raise ValueError(f"{run_dir / name} has other columns")


def _header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def cut(run_dir: Path, begin: Resumed) -> None:
    """Remove what was written to `run_dir` after the checkpoint that the run resumes from."""
    status.temporary(run_dir).mkdir(exist_ok=True)
    status.begin(run_dir)
    step, time_s = begin.manifest.step, begin.manifest.time_s
    if begin.folder.name == checkpoint.BEFORE:  # a crash between two renames
        (run_dir / checkpoint.BEFORE).rename(run_dir / checkpoint.NAME)
    shutil.rmtree(run_dir / checkpoint.PARTIAL, ignore_errors=True)
    for name in (CURVE, *SIMULATED_TABLES):  # which are of all steps, or of the last ones
        (run_dir / name).unlink(missing_ok=True)
    _keep(run_dir / "steps.csv", "step", lambda value: value < step)
    _keep(run_dir / "evaluations.csv", "step", lambda value: value <= step)  # of steps done
    _keep(run_dir / "links.csv", "time_s", lambda value: value < time_s)
    events = [event for event in read_events(run_dir) if _is_before(event, step, time_s)]
    text = "".join(json.dumps(event) + "\n" for event in events)
    OutputFolder(run_dir).write("events.jsonl", text)


def _is_before(event: dict[str, Any], step: int, time_s: float) -> bool:
    if "step" in event:
        return bool(event["step"] <= step)
    return (event.get("time_s") or 0.0) <= time_s


def _keep(path: Path, column: str, is_kept: Callable[[float], bool]) -> None:
    """Remove torn rows of the csv `path`, and those whose number in `column` is not kept."""
    kept = path.with_name(f".{path.name}.kept")
    kept.unlink(missing_ok=True)
    with path.open(newline="") as file, kept.open("x", newline="") as left:
        rows, writer = csv.reader(file), csv.writer(left, lineterminator="\n")
        header = next(rows)
        at = header.index(column)
        writer.writerow(header)
        for row in rows:
            if len(row) == len(header) and is_kept(float(row[at])):
                writer.writerow(row)
    kept.replace(path)
