"""One process forks the supervisors of all runs, as long as it is a copy of what its runner is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.runner import fork_server, run
from tests.launching import TINY, processes, runs, state
from tests.test_settings import settings

pytestmark = pytest.mark.launch

TITLE = "harness: forks supervisors"


def ended(results: Path, seed: int) -> run.Outcome:
    return run.perform(settings(*TINY, f"seed={seed}", f"results={results}"))


def forks() -> int:
    [found] = fork_server._loaded
    assert found.process.pid in processes(TITLE)
    return found.process.pid


def test_runs_share_what_has_been_imported_until_their_surroundings_change(tmp_path, monkeypatch):
    states = {ended(tmp_path, 0).state}
    first = forks()
    states.add(ended(tmp_path, 1).state)
    assert forks() == first
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path))
    states.add(ended(tmp_path, 2).state)
    second = forks()
    assert second != first and first not in processes(TITLE)
    monkeypatch.chdir(tmp_path)
    states.add(ended(tmp_path, 3).state)
    assert forks() != second
    assert states <= {"succeeded", "invalid"}  # a busy machine may spoil a run that works


def test_a_run_after_its_death_is_like_any_other(tmp_path: Path) -> None:
    ended(tmp_path, 0)
    killed = forks()
    fork_server._loaded[0].process.kill()
    fork_server._loaded[0].process.wait()  # /proc has no title of it some time before its end
    assert ended(tmp_path, 1).state in {"succeeded", "invalid"}
    assert forks() != killed


def test_ctrl_c_after_its_end_is_that_and_nothing_else(tmp_path, monkeypatch):
    class Interrupted(run.Display):
        @contextmanager
        def follow(self, run_dir: Path, **of_run: Any) -> Iterator[run.Display]:
            with super().follow(run_dir, **of_run) as shown:
                yield shown
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "Display", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        ended(tmp_path, 0)
    [kept] = runs(tmp_path)
    assert state(kept) in {"succeeded", "invalid"}


def test_one_that_was_not_followed_to_its_end_is_not_taken_for_the_next(tmp_path: Path) -> None:
    ended(tmp_path, 0)
    first = forks()
    fork_server._loaded[0].busy = True  # as after a second Ctrl-C, in a notebook
    assert ended(tmp_path, 1).state in {"succeeded", "invalid"}
    assert forks() != first


def test_why_it_could_not_start_is_told_by_the_run(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = ended(tmp_path, 0)
    assert outcome.state == "failed" and outcome.error is not None
    assert "status 1: ImportError: libcudart is missing" in outcome.error
