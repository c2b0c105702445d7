"""One run on the nodes of a Slurm job, whose commands say neither machine, master nor interface."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from tests import slurm as cluster_of
from tests.aftermath import SETTLED
from tests.emulation import machines
from tests.emulation.machines import INTERFACE, address
from tests.launching import ROOT, TINY, own_reasons, runs, state, until
from tests.slurm import SlurmNode, free_port, slurm
from tests.test_host import whole_run

EXAMPLE = ROOT / "docs" / "cluster" / "host.sbatch"
pytestmark = pytest.mark.skipif(bool(cluster_of.missing()), reason=cluster_of.missing())


@whole_run
def test_srun_starts_a_run_on_the_interfaces_of_its_nodes() -> None:
    with machines.pair() as hosts, tempfile.TemporaryDirectory() as name:
        inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{hosts[1].descriptor}", "--"]
        nodes = [
            SlurmNode("n1", free_port(), address(0)),
            SlurmNode("n2", free_port(), address(1), inside),
        ]
        folder = Path(name)
        asked = [*TINY, f"network.ledger={folder}/ledgers", f"results={folder}/results"]
        sbatch = ["sbatch", "--wait", f"--output={folder}/log", str(EXAMPLE), *asked]
        with hosts[0].entered(), slurm(nodes, address(0)) as cluster:
            before = [machines.state(), entered_state(hosts[1])]
            done = cluster.done(*sbatch, "report=false")
            said = done.stdout + done.stderr + (folder / "log").read_text()
            [run_dir] = runs(folder / "results")
            assert state(run_dir) in SETTLED and own_reasons(run_dir) == [], said
            until(
                lambda: [machines.state(), entered_state(hosts[1])] == before, "both are restored"
            )
        assert not list(folder.glob("ledgers/*.json"))
        told = json.loads((run_dir / "environment.json").read_text())["network"]
        assert told["interface"] == INTERFACE and told["master"] == address(0)
        assert len(told["machines"]) == 2


def entered_state(host: machines.Namespace) -> str:
    with host.entered():
        return machines.state()
