"""Damaged files of earlier runs: named, left out of reports, and their runs done again."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aftermath import PLAIN, SETTLED, Scene, contents, declare_good, status
from tests.launching import completed, runs

pytestmark = pytest.mark.launch

SWEEP = (*PLAIN, "seed=0,1,2,3,4")
PATIENCE_S = 180


def garble(path: Path) -> None:
    path.write_bytes(b"\0: [garbage\xff")


def tear_settings(run: Path) -> None:
    garble(run / "config.yaml")


def tear_status(run: Path) -> None:
    whole = (run / "status.json").read_text()
    (run / "status.json").write_text(whole[: len(whole) // 2])


def tear_rows(run: Path) -> None:
    """A crash of the machine, after which half of a table is there."""
    whole = (run / "steps.csv").read_text()
    (run / "steps.csv").write_text(whole[: len(whole) // 2])


def remove_summary(run: Path) -> None:
    (run / "summary.json").unlink()


DAMAGES: dict[Callable[[Path], None], str] = {tear_settings: "config.yaml",
                                              tear_status: "status.json", tear_rows: "steps.csv",
                                              remove_summary: "summary.json"}  # fmt: skip


def test_what_is_damaged_is_named_and_done_again_and_the_rest_is_kept(tmp_path: Path) -> None:
    with Scene(tmp_path, None) as scene:
        scene.open()
        output, _ = scene.start(*SWEEP).communicate(timeout=PATIENCE_S)
        *found, whole = runs(scene.results)
        assert len(found) == len(DAMAGES), output
        for run, damage in zip(found, DAMAGES, strict=True):
            declare_good(run)
            damage(run)
        declare_good(whole)
        kept = contents(whole)
        said = report(whole.parent)
        for run, name in zip(found, DAMAGES.values(), strict=True):
            told = [line for line in said.splitlines() if f"{name} is damaged" in line]
            assert len(told) == 1 and run.name in told[0], said
        assert whole.name not in said, said
        output, _ = scene.start(*SWEEP).communicate(timeout=PATIENCE_S)
        for run, name in zip(found, DAMAGES.values(), strict=True):
            [told] = [line for line in output.splitlines() if line.startswith(f"{run}: {name} ")]
            assert told.endswith("its run is done again"), output
            assert status(run)["state"] in SETTLED, output
        assert output.count("skipped") == 1 and "Traceback" not in output, output
        assert contents(whole) == kept


def report(folder: Path) -> str:
    """What the report of `folder` says of the runs that it leaves out."""
    command = [sys.executable, "-m", "harness.report", str(folder)]
    told = completed(command, PATIENCE_S)
    assert told.returncode == 1, told.stdout + told.stderr
    return told.stdout[: told.stdout.index("adhoc: ")]
