"""A study is found by being there, and its choices are composed as if they were the harness's."""

import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness.config import search_path
from harness.studies import studies
from tests.launching import afresh

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "compressors", "controllers", "profiles", "harness", "gradnet", "papers", "conf", "tests",
)  # fmt: skip
COMPOSED = """
from harness.config import sweep
from harness.config.search_path import choices
with sweep.hydra():
    for name in choices("experiment"):
        found = sweep.choices([f"+experiment={name}", "scale=laptop"])
        sweep.plain_settings(sweep.load(found[0]))
    for name in choices("method"):
        sweep.plain_settings(sweep.load([f"method={name}"]))
print(len(choices("experiment")))
"""
SHOWN = "from harness.config.sweep import hydra, load; from harness.studies import studies\n"
SHOWN += "with hydra(): print(studies()[0].name, load(['profile=valley']).profile.rate_mbit)"


@pytest.fixture
def elsewhere(tmp_path):
    """A folder with a study, as another distribution installs one."""
    choices = tmp_path / "papers" / "a_valley" / "conf" / "profile"
    choices.mkdir(parents=True)
    (choices / "valley.yaml").write_text("_target_: profiles.static.Static\nrate_mbit: 17\n")
    (tmp_path / "papers" / "a_valley" / "__init__.py").write_text('"""A valley."""\n')
    (tmp_path / "papers" / "notes" / "2024").mkdir(parents=True)  # no package, no study
    return tmp_path


def python(code: str, *path: str) -> str:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    done = afresh([sys.executable, "-c", code], env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_study_of_any_folder_on_the_path_of_python_is_there(elsewhere):
    assert python(SHOWN, str(elsewhere)) == "a_valley 17"
    names = python("from harness.studies import studies; print(*(s.name for s in studies()))")
    assert names.split() == [study.name for study in studies()] and "a_valley" not in names


EVIL = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
PAPER = None
"""
NAMED = "from harness.studies import studies; print(*(study.name for study in studies()))"
JUDGED = "from harness.cli import study; study.main(['claims', '.'])"


@pytest.mark.parametrize("module", ["claims", "predictor", "__init__"])
def test_a_study_of_the_working_directory_is_not_run(elsewhere, module):
    """It may be a folder of somebody else's results."""
    known = elsewhere / "papers" / "dct"  # also in the place of one that there is
    known.mkdir()
    for folder in (elsewhere / "papers" / "a_valley", known, elsewhere / "papers"):
        (folder / f"{module}.py").write_text(EVIL)
    here = os.environ | {"PYTHONPATH": ""}
    code = f"import sys; sys.path[1:1] = []; {JUDGED}"
    for arguments in (["-c", code], ["-m", "harness", "study", "claims", "."], ["-c", NAMED]):
        done = afresh([sys.executable, *arguments], cwd=elsewhere, env=here)
        assert "a_valley" not in done.stdout + done.stderr, done.stderr
    assert not list(elsewhere.rglob("ran"))


def test_a_study_of_another_folder_is_there_where_it_is_asked_for(elsewhere):
    asked = os.environ | {"PYTHONPATH": "", "GRADNET_STUDIES": str(elsewhere)}
    done = afresh([sys.executable, "-c", NAMED], cwd=elsewhere, env=asked)
    assert "a_valley" in done.stdout.split(), done.stderr
    by_option = ["-m", "harness", "--studies", ".", "profile=valley", "--cfg", "job"]
    plain = os.environ | {"PYTHONPATH": ""}
    done = afresh([sys.executable, *by_option], cwd=elsewhere, env=plain)
    assert "rate_mbit: 17" in done.stdout, done.stderr
    done = afresh([sys.executable, *by_option[:3], "gone"], cwd=elsewhere, env=plain)
    assert done.stderr.startswith("harness: --studies: must be a folder with a folder papers/")


def test_no_choice_is_told_twice():
    files = [
        file.relative_to(folder)
        for folder in search_path.folders()
        for file in folder.rglob("*.yaml")
    ]
    assert [name for name, count in Counter(files).items() if count > 1] == []


@pytest.mark.long
def test_without_one_study_the_others_compose_and_are_judged(tmp_path):
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.rmtree(tmp_path / "papers" / "dct")
    left = [name for name in search_path.choices("experiment") if not name.startswith("dct_")]
    assert called(["-c", COMPOSED], tmp_path) == str(len(left))
    tests = ["tests/test_arrows.py", "tests/claims/test_judge.py", "tests/claims/test_published.py"]
    assert " failed" not in called(["-m", "pytest", "-q", "-n0", *tests], tmp_path)


def called(arguments: list[str], where: Path) -> str:
    done = afresh([sys.executable, *arguments], cwd=where)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.strip()
