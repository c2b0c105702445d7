"""Damaged files of earlier runs: named, left out of reports, and their runs done again."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.records import TABLES
from tests.aftermath import PLAIN, SETTLED, Scene, contents, declare_good, status
from tests.launching import ROOT, runs

pytestmark = pytest.mark.launch

SWEEP = (*PLAIN, "seed=0,1,2")
PATIENCE_S = 180


def garble(path: Path) -> None:
    path.write_bytes(b"\0: [garbage\xff")


def tear_settings(run: Path) -> None:
    garble(run / "config.yaml")


def tear_status(run: Path) -> None:
    whole = (run / "status.json").read_text()
    (run / "status.json").write_text(whole[: len(whole) // 2])


def tear_rows(run: Path) -> None:
    """As a crash of the machine leaves them."""
    for name in (*TABLES, "events.jsonl"):
        with (run / name).open("ab") as file:
            file.write(b'{"5,0,0.')


DAMAGES: tuple[Callable[[Path], None], ...] = (tear_settings, tear_status, tear_rows)


def test_what_is_damaged_is_named_and_done_again_and_the_rest_is_kept(tmp_path: Path) -> None:
    with Scene(tmp_path, None) as scene:
        scene.open()
        output, _ = scene.start(*SWEEP).communicate(timeout=PATIENCE_S)
        found = runs(scene.results)
        assert len(found) == len(DAMAGES), output
        for run, damage in zip(found, DAMAGES, strict=True):
            declare_good(run)
            damage(run)
        kept = contents(found[2])
        said = report(found[0].parent)
        for run, name in zip(found, ("config.yaml", "status.json"), strict=False):
            told = [line for line in said.splitlines() if f"{name} is damaged" in line]
            assert len(told) == 1 and run.name in told[0], said
        assert found[2].name not in said, said
        output, _ = scene.start(*SWEEP).communicate(timeout=PATIENCE_S)
        for run, name in zip(found, ("config.yaml", "status.json"), strict=False):
            assert f"{run}/{name} is damaged: its run is done again" in output, output
            assert status(run)["state"] in SETTLED, output
        assert output.count("skipped") == 1 and "Traceback" not in output, output
        assert contents(found[2]) == kept


def report(folder: Path) -> str:
    """What the report of `folder` says of the runs that it leaves out."""
    command = [sys.executable, "-m", "harness.report", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout[: done.stdout.index("adhoc: ")]
