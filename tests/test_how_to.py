"""docs/add_a_compressor.md, done as it says, in a copy of the project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
HOW_TO = ROOT / "docs" / "add_a_compressor.md"
FOLDERS = ("compressors", "controllers", "profiles", "harness", "conf", "tests")
FOLDERS += ("results/published",)
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def project(tmp_path):
    """A copy, for what a reader adds."""
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def done(command: str, where: Path) -> str:
    program, *rest = command.split()
    assert program == "python"
    done = subprocess.run([sys.executable, *rest], cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_compressor_added_as_the_how_to_says_is_tested_and_in_the_report(project):
    text = HOW_TO.read_text()
    files = dict(FILE.findall(text))
    assert len(files) == 3
    for name, content in files.items():
        assert not (project / name).exists()
        (project / name).write_text(content)
    test, sweep, report = (line for block in COMMANDS.findall(text) for line in block.splitlines())
    passed = re.search(r"(\d+) passed", done(test, project))
    assert passed and int(passed[1]) > 20
    assert "cyclic_0.1" in done(sweep, project) + done(report, project)
    table = pd.read_csv(next(project.glob("results/quickstart/report/**/comparison.csv")))
    rows = table.set_index("method")
    assert set(rows.index) == {"allreduce", "topk_0.1", "cyclic_0.1"}
    assert rows.volume_ratio["cyclic_0.1"] == pytest.approx(0.1, rel=0.1)
    assert rows.volume_ratio["topk_0.1"] > 1.5 * rows.volume_ratio["cyclic_0.1"]
