"""What a result depends on: the commit is told with the program git and without it."""

import subprocess
from pathlib import Path

import pytest

from harness.records import environment
from harness.reporting.page import surroundings


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of one commit."""
    here = tmp_path / "checkout"
    here.mkdir()
    _run(here, "init", "--quiet")
    (here / "a.txt").write_text("a\n")
    _run(here, "add", "a.txt")
    _run(here, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "add a")
    return here


def _run(here: Path, *words: str) -> str:
    told = subprocess.run(["git", "-C", here, *words], capture_output=True, text=True, check=True)
    return told.stdout.strip()


def test_a_change_is_told_with_the_commit(checkout: Path) -> None:
    commit = _run(checkout, "rev-parse", "HEAD")
    assert environment._git(checkout) == {"commit": commit, "dirty": False}
    (checkout / "a.txt").write_text("b\n")
    assert environment._git(checkout) == {"commit": commit, "dirty": True}


@pytest.mark.parametrize("how", ["loose", "packed", "detached"])
def test_the_commit_is_known_where_there_is_no_git(checkout, monkeypatch, tmp_path, how):
    commit = _run(checkout, "rev-parse", "HEAD")
    if how == "packed":
        _run(checkout, "pack-refs", "--all")
    if how == "detached":
        _run(checkout, "checkout", "--quiet", "--detach")
    monkeypatch.setenv("PATH", str(tmp_path))  # which has no git
    assert environment._git(checkout) == {"commit": commit, "dirty": None}


def test_outside_a_checkout_no_commit_is_told(tmp_path, monkeypatch):
    assert environment._git(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment._git(tmp_path) is None


@pytest.mark.parametrize(
    "dirty, told", [(True, "not committed"), (False, "nothing changed"), (None, "not known")]
)
def test_the_page_says_whether_the_checkout_was_changed(dirty: bool | None, told: str) -> None:
    [(name, value)] = surroundings._of_run({"git": {"commit": "abc", "dirty": dirty}})
    assert name == "commit" and told in value
