"""A column is declared once: csv, observation, tables and docs follow it."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from controllers.base import Column, Observation
from harness.records import columns
from harness.records.column_reference import reference
from harness.records.run_directory import ALL_TABLES, OLD_NAMES, Step
from harness.reporting.analysis import metrics
from tests.launching import afresh

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compressors", "conf", "controllers", "harness", "papers", "profiles", "tests")
MEASURED = "            **did.totals()._asdict(),\n"  # in virtual time
LINE = """    calls: Annotated[float, Column("collectives", "calls a step", shown=True)] = nan
"""
SCRIPT = """
import sys
from pathlib import Path
from controllers.fixed import Fixed
from harness.reporting.analysis import comparison, load, tables, terminal
from rich.console import Console
from tests.virtual.runs import simulated

seen, density = [], Fixed.density
Fixed.density = lambda self, last: (seen.append(last), density(self, last))[1]
run = simulated(Path(sys.argv[1]), "emulation.compute=replay", "workers=2", "steps=4",
                "compressor=topk", "controller=fixed")
print((run / "steps.csv").read_text().split()[0])
print(sorted({each.calls for each in seen if each}))
print(load.steps(run).calls.unique())
found = comparison.compare(load.runs(run))
Console(width=200).print(terminal.table(tables.comparison(found.table)))
"""


def test_the_docs_tell_every_column():
    told = (ROOT / "docs" / "columns.md").read_text()
    assert told == reference(), "python -m harness.records.column_reference > docs/columns.md"


@pytest.mark.parametrize("row", ALL_TABLES.values(), ids=list(ALL_TABLES))
def test_a_name_means_one_thing_wherever_it_stands(row):
    """No csv uses a name that was given up, and a unit is the end of a name."""
    assert not set(columns.recorded(row)) & set(OLD_NAMES)
    assert all(kind in (int, float, str) for kind in columns.recorded(row).values())


def test_a_step_has_all_that_a_controller_observes_and_a_run_the_means():
    assert set(columns.of(Observation)) < set(columns.of(Step))
    assert not set(metrics.MEANS) & set(metrics.RunMetrics._fields)


def test_a_column_is_told_by_its_name_where_it_has_no_title():
    known = columns.of(Step)
    assert known["comm_s"].title == "" and columns.unit("comm_s") == "s"
    assert columns.words("overlap_window_s") == "overlap window"
    assert [name for name, each in known.items() if each.key] == [*known][:2] == ["step", "rank"]
    assert isinstance(known["comm_s"], Column) and known["comm_s"].told


@pytest.mark.timeout(600)
def test_a_line_and_what_measures_it_are_all_that_a_new_column_needs(tmp_path):
    """In a copy with these two edits: csv, observation, and the table of a report have it."""
    for name in PACKAGES:
        left_out = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=left_out)
    _insert(
        tmp_path / "copy/controllers/base.py", "@dataclass(frozen=True, kw_only=True)\nclass Obs"
    )
    edited = tmp_path / "copy/harness/virtual/exchange.py"
    text = edited.read_text()
    assert text.count(MEASURED) == 1
    edited.write_text(text.replace(MEASURED, MEASURED + " " * 12 + "calls=len(did.durations_s),\n"))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    known = os.environ | {"PYTHONPATH": str(tmp_path / "copy")}
    known["GRADNET_KERNELS"] = "numpy"  # those of the copy would be compiled first
    done = afresh(command, cwd=tmp_path / "copy", env=known)
    assert done.returncode == 0, done.stderr
    header, observed, read, *table = done.stdout.splitlines()
    assert "calls" in header.split(",")
    assert observed == "[2]" and read == "[2.]"  # top-k gathers values, and where they stand
    assert "calls" in " ".join(table)


def _insert(path: Path, before: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, LINE + "\n\n" + before))
