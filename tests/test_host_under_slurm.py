"""One run on the nodes of a Slurm job, whose commands say neither machine, master nor interface."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.records import status
from tests import slurm as cluster_of
from tests.aftermath import SETTLED
from tests.emulation import machines
from tests.emulation.machines import INTERFACE, address
from tests.launching import ROOT, TINY, own_reasons, runs, state, until
from tests.slurm import Slurm, SlurmNode, free_port, slurm
from tests.test_host import whole_run

EXAMPLE = ROOT / "docs" / "cluster" / "host.sbatch"
pytestmark = pytest.mark.skipif(bool(cluster_of.missing()), reason=cluster_of.missing())


class Ran(NamedTuple):
    """A job of the example file, on two machines."""

    folder: Path
    cluster: Slurm
    states: Callable[[], list[str]]  # of both interfaces

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def asked(self, *overrides: str) -> list[str]:
        """What follows `sbatch` and its options."""
        own = [f"network.ledger={self.folder}/ledgers", f"results={self.results}", "report=false"]
        return [f"--output={self.folder}/log", str(EXAMPLE), *TINY, *own, *overrides]

    def is_restored(self, before: list[str]) -> bool:
        return self.states() == before and not list(self.folder.glob("ledgers/*.json"))


@contextmanager
def two_nodes() -> Iterator[Ran]:
    with machines.pair() as hosts, tempfile.TemporaryDirectory() as name:
        inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{hosts[1].descriptor}", "--"]
        nodes = [
            SlurmNode("n1", free_port(), address(0)),
            SlurmNode("n2", free_port(), address(1), inside),
        ]
        with hosts[0].entered(), slurm(nodes, address(0)) as cluster:
            yield Ran(Path(name), cluster, lambda: [machines.state(), entered_state(hosts[1])])


@whole_run
def test_srun_starts_a_run_on_the_interfaces_of_its_nodes() -> None:
    with two_nodes() as job:
        before = job.states()
        done = job.cluster.done("sbatch", "--wait", *job.asked())
        said = done.stdout + done.stderr + (job.folder / "log").read_text()
        [run_dir] = runs(job.results)
        assert state(run_dir) in SETTLED and own_reasons(run_dir) == [], said
        until(lambda: job.is_restored(before), "both are restored")
        told = json.loads((run_dir / "environment.json").read_text())["network"]
    assert told["interface"] == INTERFACE and told["master"] == address(0)
    assert len(told["machines"]) == 2


def cancelled(*options: str) -> None:
    """`scancel` gives steps SIGTERM, and SIGKILL after KillWait; with an option that at once."""
    with two_nodes() as job:
        before = job.states()
        number = job.cluster.told("sbatch", "--parsable", *job.asked("steps=100000")).strip()
        tables = job.results.glob
        until(
            lambda: any(path.read_text().count("\n") > 3 for path in tables("*/*/steps.csv")),
            "both train",
        )
        assert job.states() != before and list(job.folder.glob("ledgers/*.json"))
        job.cluster.told("scancel", *options, number)
        until(lambda: job.is_restored(before), "both are restored")
        [run_dir] = runs(job.results)
        assert status.state(run_dir) in ("interrupted", "failed")


@whole_run
def test_scancel_leaves_both_interfaces_as_they_were() -> None:
    cancelled()


@whole_run
def test_scancel_by_sigkill_leaves_that_to_the_watchdogs() -> None:
    """Whom Slurm does not see as the job's here (proctrack/linuxproc); with cgroups it does."""
    cancelled("--full", "--signal=KILL")


def entered_state(host: machines.Namespace) -> str:
    with host.entered():
        return machines.state()
