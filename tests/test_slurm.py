"""A sweep as an array of a real Slurm, of which a node is lost under way."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch

from harness.cli import status as sweep_status
from harness.records import checkpoint
from harness.records.run_directory import read_events
from tests import slurm as cluster_of
from tests.launching import ROOT, harness, popen, runs, state, until
from tests.slurm import Slurm, SlurmNode, free_port, slurm
from tests.virtual.runs import DETERMINED, SMALL, weights

pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="gradnet[cluster]")
pytestmark = [pytest.mark.skipif(bool(cluster_of.missing()), reason=cluster_of.missing()),
              pytest.mark.launch, pytest.mark.long, pytest.mark.timeout(5400)]  # fmt: skip
ON_ITS_WAY = (*SMALL, *DETERMINED, "model.width=8", "workers=2", "method=topk")
STEPS = 200
ON_ITS_WAY += (f"steps={STEPS}", "checkpoint_every=5", f"eval_every={STEPS}")
RUN = ("network=simulated", *SMALL[:2], "model.width=8", "workers=2", "steps=3", "report=false")
RUN += ("emulation.compute=replay", "eval_every=100")
OF_A_RUN_S = 60  # at most, on a machine that others use too


@dataclass
class Appended:
    """A tracker that writes a line for each run that ends, and so shows one that is made twice."""

    path: str

    def check(self) -> None: ...

    def write(self, run_dir: Path) -> None:
        line = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(line, f"{run_dir.name}\n".encode())
        os.close(line)


def runs_on(cluster: Slurm, node: str) -> list[str]:
    return cluster.told("squeue", "-h", "-t", "R", "-w", node, "-o", "%i").split()


@pytest.mark.parametrize("count", [3, pytest.param(200, marks=pytest.mark.faults)])
def test_no_run_is_lost_or_made_twice_when_a_node_dies(tmp_path: Path, count: int) -> None:
    nodes = [SlurmNode(name, free_port()) for name in ("n1", "n2")]
    ended, log = tmp_path / "ended", (tmp_path / "log").open("w+")
    tracker = (f"tracker._target_={__name__}.Appended", f"+tracker.path={ended}")
    asked = ["-m", "hydra/launcher=submitit_slurm", *RUN, *tracker, f"seed=range({count})"]
    with slurm(nodes) as cluster, log:
        command = [sys.executable, "-m", "harness", *asked, f"results={tmp_path}"]
        with popen(command, cwd=ROOT, env=cluster.environment, stdout=log, stderr=log) as sweep:
            try:
                enough = max(1, count // 3)
                until(lambda: len(runs(tmp_path)) >= enough, "a third", count * OF_A_RUN_S)
                lost = until(lambda: runs_on(cluster, "n2"), "a job on n2", 2 * OF_A_RUN_S)
                cluster.lose("n2")
                until(lambda: any("down" in each for each in cluster.states()), "n2 is down")
                cluster.start(nodes[1])
                code = sweep.wait(count * OF_A_RUN_S)
            finally:
                sweep.kill()
        log.seek(0)
        assert code == 0, log.read()
    done = runs(tmp_path)
    assert len(done) == count and {state(each) for each in done} == {"succeeded"}
    assert sorted(ended.read_text().split()) == sorted(each.name for each in done)
    [folder] = sweep_status.sweeps(tmp_path)
    seen = sweep_status.look(folder)
    assert [each.state for each in seen] == [sweep_status.DONE] * count
    (tmp_path / "figures.json").write_text(json.dumps({"runs": count, "lost": lost}))


def saved(folder: Path) -> int:
    """Steps of the last checkpoint of the run in `folder`; 0 before there is one."""
    found = [path for run in runs(folder) for path in run.glob("checkpoint/manifest.json")]
    return checkpoint.manifest_of(found[0].parent).step if found else 0


def test_a_task_that_is_queued_again_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """By the file that docs/cluster.md gives; preemption is a requeue by somebody else.

    It is queued again twice: by a requeue, and once more as its node dies.
    """
    nodes = [SlurmNode("n1", free_port())]
    sweep = [str(ROOT / "docs/cluster/sweep.sbatch"), *ON_ITS_WAY, f"results={tmp_path}/array"]
    asked = ["sbatch", "--parsable", "--array=0", "--cpus-per-task=1", f"--output={tmp_path}/log"]
    array = tmp_path / "array"
    with slurm(nodes) as cluster:
        job = cluster.told(*asked, *sweep).strip()
        until(lambda: saved(array) >= 10, "a checkpoint", 3 * OF_A_RUN_S)
        cluster.told("scontrol", "requeue", f"{job}_0")
        until(lambda: len(went_on(array)) == 1, "it goes on", 3 * OF_A_RUN_S)
        [first] = went_on(array)
        until(lambda: saved(array) >= first + 10, "a later checkpoint", 3 * OF_A_RUN_S)
        cluster.lose("n1")
        until(lambda: any("down" in each for each in cluster.states()), "n1 is down")
        cluster.start(nodes[0])
        [run] = runs(array)
        until(lambda: state(run) == "succeeded", "the run", 5 * OF_A_RUN_S)
    first, second = went_on(array)
    assert 10 <= first < second < STEPS and first % 5 == second % 5 == 0
    done = harness("network=simulated", *ON_ITS_WAY, results=tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    [whole] = runs(tmp_path / "whole")
    for name in ("steps.csv", "evaluations.csv"):
        pd.testing.assert_frame_equal(pd.read_csv(run / name), pd.read_csv(whole / name))
    for name, value in weights(run).items():
        assert torch.equal(value, weights(whole)[name]), name


def went_on(folder: Path) -> list[int]:
    """At which steps the run in `folder` went on."""
    found = [each for run in runs(folder) for each in read_events(run)]
    return [each["step"] for each in found if each["event"] == "resumed"]
