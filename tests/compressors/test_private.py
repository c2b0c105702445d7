"""What is compiled once and loaded again lies where no other user can have put it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compressors import kernels
from compressors.kernels import private
from harness.workloads.data.kept import cache_folder

OTHER = 65533  # a user that is nobody here


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache home whose temporary folder is beside it; both are as `make` in each test says."""
    for name in ("temporary", "home"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setattr(private.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setattr(private.tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.delenv(private.CHOSEN, raising=False)
    return tmp_path / "home"


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750])
def test_a_folder_of_one_s_own_is_used(mode: int, home: Path, capsys) -> None:
    (home / "cache" / "gradnet").mkdir(parents=True)
    for path in (home, home / "cache", home / "cache" / "gradnet"):
        path.chmod(mode)
    assert private.cache_folder() == cache_folder(None) == home / "cache" / "gradnet"
    assert kernels._cache().parent == home / "cache" / "gradnet"
    assert not capsys.readouterr().err


@pytest.mark.parametrize("open_one", ["", "cache", "cache/gradnet"])
@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_one_that_others_can_write_to_is_not(open_one: str, mode: int, home: Path, capsys) -> None:
    """Which is said once, also to what is started afterwards."""
    (home / "cache" / "gradnet").mkdir(parents=True, mode=0o700)
    (home / open_one).chmod(mode)
    used = private.cache_folder()
    assert used == cache_folder(None) == home.with_name("temporary") / f"gradnet-{os.getuid()}"
    assert kernels._cache().parent == used and not os.listdir(home / "cache" / "gradnet")
    said = capsys.readouterr().err
    assert said.count("is writable by others") == said.count("\n") == 1
    again = "from compressors.kernels import private; print(private.cache_folder())"
    child = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True)
    assert (child.stdout, child.stderr) == (f"{used}\n", "")


def test_a_sticky_folder_may_be_above_it_and_is_none_itself(home: Path, capsys) -> None:
    (home / "cache").mkdir()
    (home / "cache").chmod(0o1777)
    assert private.cache_folder() == home / "cache" / "gradnet"
    (home / "cache" / "gradnet").chmod(0o1777)
    assert private.cache_folder() != home / "cache" / "gradnet"


@pytest.mark.skipif(os.getuid() != 0, reason="gives folders to other users")
@pytest.mark.parametrize("theirs", ["", "cache", "cache/gradnet"])
def test_one_of_another_user_is_not(theirs: str, home: Path, capsys) -> None:
    (home / "cache" / "gradnet").mkdir(parents=True, mode=0o700)
    os.chown(home / theirs, OTHER, OTHER)
    assert private.cache_folder().parent == home.with_name("temporary")
    assert "is another user's" in capsys.readouterr().err


def test_nor_is_a_temporary_one_that_others_have_prepared(home: Path, capsys) -> None:
    (home.with_name("temporary") / f"gradnet-{os.getuid()}").mkdir()
    for path in (home, home.with_name("temporary") / f"gradnet-{os.getuid()}"):
        path.chmod(0o777)
    used = private.cache_folder()
    assert used.name.startswith("gradnet-") and used.stat().st_mode & 0o077 == 0
    assert not os.listdir(used) and kernels._cache().parent == used


def test_a_link_to_a_folder_of_others_is_not(home: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (home / "cache").symlink_to(tmp_path / "open")
    assert private.cache_folder().parent == home.with_name("temporary")
