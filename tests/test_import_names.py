"""Whose folder has the name of one of our packages is told which, in a line."""

import os
import sys
from pathlib import Path

import pytest

from tests.launching import ROOT, afresh

OURS = ("compressors", "controllers", "profiles")


def imported(folder: Path, *command: str) -> tuple[int, str]:
    """How `command` of Python ends in `folder`, and the last line that it prints."""
    known = os.environ | {"PYTHONPATH": str(ROOT)}
    done = afresh([sys.executable, *command], cwd=folder, env=known)
    return done.returncode, (done.stdout + done.stderr).rstrip().rpartition("\n")[2]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("command", [("-m", "harness", "--version"), ("-c", "import gradnet")])
def test_a_package_that_is_found_first_is_named(name, command, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    code, said = imported(tmp_path, *command)
    hides = f"{tmp_path / name} hides gradnet's package `{name}`: give it another name"
    assert code == 1 and said == f"ImportError: {hides}"


def test_so_is_a_module(tmp_path: Path) -> None:
    (tmp_path / "profiles.py").touch()
    code, said = imported(tmp_path, "-m", "harness", "--version")
    assert code == 1 and f"{tmp_path}/profiles.py hides gradnet's package `profiles`" in said


def test_a_folder_that_is_no_package_and_other_names_of_ours_do_no_harm(tmp_path: Path) -> None:
    for name in (*OURS, "papers", "conf", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "compressors" / "notes.txt").touch()
    code, said = imported(tmp_path, "-m", "harness", "--version")
    assert code == 0 and said.startswith("gradnet ")
