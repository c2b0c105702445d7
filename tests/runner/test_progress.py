"""What the terminal is told of a run under way."""

import os
from dataclasses import replace
from pathlib import Path

from harness.preview import composed
from harness.records.run_directory import Step, Table
from harness.runner.progress import Progress
from tests import records_by_hand as by_hand

RUN = composed(["steps=4", "emulation.compute=paced"])[0].run()


def row(step: int, rank: int) -> Step:
    state = '{"h": 0.5, "rate": 1.0}'  # which has a comma in it
    told = dict(time_s=1.0 + step, loss=0.5, samples=8, received_bytes=125_000, density=1.0)
    return by_hand.step(step, rank, **told, controller=state)


def test_rows_are_counted_once_though_another_file_takes_the_place_of_theirs(
    tmp_path: Path,
) -> None:
    """As on machine 0, which puts the rows of all machines between its own in the end."""
    table = Table(tmp_path, "steps.csv")
    table.header()
    progress = Progress(tmp_path, RUN)
    for step in range(3):
        table.append(row(step, 0))
        progress.update()
    line = progress._line()
    assert "step 3/4" in line and "goodput 1.0 Mbit/s" in line  # 3 Mbit in 3 s
    draft = tmp_path / "draft"
    draft.mkdir()
    merged = Table(draft, "steps.csv")
    merged.header()
    for step in range(3):
        merged.append(row(step, 0), row(step, 1))
    os.replace(draft / "steps.csv", tmp_path / "steps.csv")
    progress.update()
    assert progress._line().partition("ETA")[0] == line.partition("ETA")[0]


def test_what_is_replayed_has_no_loss(tmp_path: Path) -> None:
    table = Table(tmp_path, "steps.csv")
    table.header()
    table.append(row(0, 0))
    lines = {}
    for compute in ("paced", "replay"):
        emulation = replace(RUN.emulation, compute=compute)
        progress = Progress(tmp_path, replace(RUN, emulation=emulation))
        progress.update()
        lines[compute] = progress._line()
    assert "loss 0.5000  density" in lines["paced"]
    assert "loss" not in lines["replay"] and "step 1/4  density" in lines["replay"]
