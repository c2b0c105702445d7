"""docs/add_a_compressor.md and docs/add_a_study.md, done as they say, in a copy of the project.

A compressor's runs have fewer steps.
"""

import re
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.launching import afresh

# a pytest and three commands, of code that nobody has imported yet
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FOLDERS = (
    "compressors", "controllers", "profiles", "harness", "gradnet", "papers", "conf", "tests",
)  # fmt: skip
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def project(tmp_path):
    """A copy, for what a reader adds."""
    for name in FOLDERS:
        being_written = shutil.ignore_patterns("*.pyc.*")  # what was compiled is copied with it
        shutil.copytree(ROOT / name, tmp_path / name, ignore=being_written)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def done(command: str, where: Path) -> str:
    program, *rest = command.split()
    assert program == "python"
    done = afresh([sys.executable, *rest], cwd=where)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def added(how_to: str, files: int, where: Path) -> list[str]:
    """Writes the files that a how-to tells; returns its commands."""
    text = (DOCS / how_to).read_text()
    found = dict(FILE.findall(text))
    assert len(found) == files
    for name, content in found.items():
        assert not (where / name).exists()
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(content)
    return [line for block in COMMANDS.findall(text) for line in block.splitlines()]


def test_a_compressor_added_as_the_how_to_says_is_tested_and_in_the_report(project):
    test, others, own, report = added("add_a_compressor.md", 2, project)
    passed = re.search(r"(\d+) passed", done(test, project))
    assert passed and int(passed[1]) > 20
    others, own = (words.replace("steps=60", "steps=10") for words in (others, own))
    done(others, project)
    assert "cyclic_0.1" in done(own, project) + done(report, project)
    table = pd.read_csv(next(project.glob("results/quickstart/report/**/comparison.csv")))
    rows = table.set_index("method")
    assert set(rows.index) == {"allreduce", "topk_0.1", "dc2_da2", "cyclic_0.1"}
    assert rows.volume_ratio["cyclic_0.1"] == pytest.approx(0.1, rel=0.1)
    assert rows.volume_ratio["topk_0.1"] > 1.5 * rows.volume_ratio["cyclic_0.1"]


def test_a_study_is_one_folder_that_is_tested_judged_and_reproduced(project):
    test, run, judge, plan = added("add_a_study.md", 7, project)
    passed = re.search(r"(\d+) passed", done(test, project))
    assert passed and int(passed[1]) > 5
    assert "valley" in done(run, project)
    judged = done(judge, project)
    assert judged.splitlines()[-1].endswith("each decision once: 1 holds in virtual time")
    (side,) = (line for line in judged.splitlines() if "throughput over dense" in line)
    assert re.search(r" 4 +(3\.[5-9]|4\.)", side)
    assert "to do:" in done(plan, project)
    whole = next(project.glob("results/valley/report/**/index.html")).read_text()
    assert "top-k has the highest throughput where a link narrows" in whole
