"""Runs started at the same time take turns, whoever started them and however the first one ends."""

import signal
from pathlib import Path

import pytest

from harness.locks import WAITING, holder, machine_lock, machine_to_ourselves
from tests.aftermath import PLAIN, SETTLED, SOON_S, Scene, finished_run, status, traces
from tests.launching import runs

pytestmark = pytest.mark.launch

SWEEP = (*PLAIN, "seed=0,1")
ORDINARY = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("before"), *PLAIN)


def test_the_same_command_waits_for_another_user_s_and_takes_over_when_it_is_killed(
    finished: Path, tmp_path: Path
) -> None:
    """The second is to run what the first has left, in the same directory."""
    with Scene(tmp_path, finished) as scene:
        first = scene.start(*SWEEP, before=ORDINARY)
        run = scene.under_way()
        seen = traces(first.pid)
        second = scene.start(*SWEEP)
        said = second.stdout
        assert said and said.readline().startswith("2 runs")
        assert said.readline().startswith("skipped")
        told = said.readline()
        assert told.startswith(f"{WAITING}: process {first.pid} of user ")
        assert f"in {run}, by " in told and "seed=0,1" in told
        assert status(run)["pid"] == first.pid
        scene.open()
        first.kill()
        output, _ = second.communicate(timeout=4 * SOON_S)
        assert status(run)["state"] in SETTLED, output
        assert status(run)["pid"] != first.pid
        scene.check(seen)


OURS = "on this machine, for a law, by "


def test_what_another_has_done_meanwhile_is_not_done_again(finished: Path, tmp_path: Path) -> None:
    with Scene(tmp_path, None) as scene:
        with machine_to_ourselves("for a law"):
            waiting = scene.start(*PLAIN, "seed=0")
            assert waiting.stdout and OURS in waiting.stdout.readline()
            scene.keep(finished, scene.results)
        output, _ = waiting.communicate(timeout=SOON_S)
        assert "skipped" in output and waiting.returncode == 0
        scene.intact()
        assert holder(machine_lock()) is None


def test_ctrl_c_while_waiting_ends_without_a_run(tmp_path: Path) -> None:
    with Scene(tmp_path, None) as scene, machine_to_ourselves("for a law"):
        waiting = scene.start(*PLAIN, "seed=0")
        assert waiting.stdout and OURS in waiting.stdout.readline()
        waiting.send_signal(signal.SIGINT)
        output, _ = waiting.communicate(timeout=SOON_S)
        assert waiting.returncode == 130 and "Traceback" not in output
        assert runs(scene.results) == []
