"""A stage that dies or hangs, over packets: the run says which, and leaves nothing."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aftermath import Scene, remains, traces, traces_of_run
from tests.launching import processes, until

pytestmark = [pytest.mark.launch, pytest.mark.timeout(600)]  # one sweep is for all laws

STAGES = 3
HANGS = 1  # stage that waits at the gate; the others wait for it
RUN = (
    "parallel=pipeline", f"parallel.stages={STAGES}", f"workers={STAGES}", "accumulate=2",
    "emulation.compute=measured", "profile.rate_mbit=200",
)  # fmt: skip
SEEDS = "seed=" + ",".join(map(str, range(STAGES)))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, tuple[dict, list[str]]]]:
    """By stage that was killed in a run of its own, how that ended and what was left of it."""
    with Scene(tmp_path_factory.mktemp("killed"), None) as scene:
        running = scene.start(*RUN, SEEDS, GATE_RANK=str(HANGS))
        yield {stage: _hit(scene, running.pid, stage) for stage in range(STAGES)}


def _hit(scene: Scene, runner: int, stage: int) -> tuple[dict, list[str]]:
    run, worker = scene.under_way(), f"worker rank {stage}"
    ours = until(lambda: set(processes(worker)) & set(traces(runner).processes), worker)
    seen = traces_of_run(runner)
    assert isinstance(ours, set)
    os.kill(max(ours), signal.SIGKILL)
    return _end(scene, run, seen)


def _end(scene: Scene, run: Path, seen: object) -> tuple[dict, list[str]]:
    told = scene.settled(run)
    try:
        until(lambda: not _left(seen), "nothing left", 30)
    except AssertionError:
        return told, _left(seen)
    return told, []


def _left(seen) -> list[str]:
    """But interfaces, which are not ours: those of a next run, with other namespaces, may be."""
    return [each for each in remains(seen) if not each.startswith("interface")]


@pytest.mark.parametrize("stage", range(STAGES))
def test_kill_9_of_a_stage_fails_the_run_by_name_and_leaves_nothing(stage, killed) -> None:
    """One that computes for others, one that waits for them, one that is held."""
    told, left = killed[stage]
    assert not left
    assert told["state"] == "failed"
    assert re.search(f"^rank {stage} was killed by SIGKILL", told["error"]), told["error"]


def test_a_stage_that_hangs_ends_the_run_by_the_timeout_and_is_named(tmp_path) -> None:
    with Scene(tmp_path, None) as scene:
        running = scene.start(*RUN, "timeouts.exchange_s=8", GATE_RANK=str(HANGS))
        run = scene.under_way()
        seen = traces(running.pid)
        output, _ = running.communicate(timeout=120)
        told, left = _end(scene, run, seen)
    assert not left
    assert told["state"] == "failed"
    assert re.search(
        rf"^rank {HANGS} does not answer; rank [02]: PeerLost: nothing "
        rf"(came from|more was taken by) rank {HANGS}, stage {HANGS} "
        r"of pipeline 0: .*Timed out waiting 8000ms",
        told["error"],
    ), told["error"]
    assert told["error"] in output
