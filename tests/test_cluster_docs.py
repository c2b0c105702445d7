"""Commands of docs/cluster.md and the files beside it are composed and checked, as a node would."""

import re
import shlex
from typing import Any

import pytest
import yaml

from harness.config.scales import describe
from harness.emulation import host, placement
from tests.launching import ROOT

FILES = ROOT / "docs" / "cluster"
COMMAND = re.compile(r"-m harness (.*)")  # of python, or of torchrun
NODE = {"SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_ARRAY_TASK_ID": "3",
        "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "JOB_COMPLETION_INDEX": "1",
        placement.MASTER: "10.0.0.2"}  # fmt: skip


def composed(line: str) -> list[dict[str, Any]]:
    """Settings of the runs of a command, whose variables a node has put in."""
    known = re.sub(r"\$\{?(\w+)\}?", lambda found: NODE[found[1]], line)
    words = [each for each in shlex.split(known) if "=" in each or each == "-m"]
    return [each.config for each in describe([words]).runs]


def commands(text: str) -> list[str]:
    """What follows `python -m harness` in `text`, without what a file passes on."""
    joined = re.sub(r"\\\n\s*", " ", text).replace('"$@"', "").replace("\\$", "$")
    return [re.split(r"\s{3,}", each)[0] for each in COMMAND.findall(joined)]


@pytest.fixture(autouse=True)
def _on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_interface_to", lambda master: "eth1")
    for name, value in NODE.items():
        monkeypatch.setenv(name, value)


def test_every_command_of_the_page_is_composed() -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="gradnet[cluster]")
    found = commands((ROOT / "docs" / "cluster.md").read_text())
    assert len(found) > 4 and all(composed(each) for each in found)


@pytest.mark.parametrize("name", ["sweep.sbatch", "host.sbatch"])
def test_an_sbatch_file_has_a_command_for_every_node(name: str) -> None:
    text = (FILES / name).read_text()
    [command] = commands(text)
    [run] = composed(command)
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    if name == "sweep.sbatch":
        assert run["seed"] == 3 and "requeue" in options
    else:
        assert (run["workers"], run["network"]["machine"], run["network"]["machines"]) == (2, 1, 2)
        assert (options["nodes"], options["ntasks-per-node"]) == ("2", "1")


def test_a_sky_task_has_a_command_for_every_node() -> None:
    task = yaml.safe_load((FILES / "host_skypilot.yaml").read_text())
    [command] = commands(task["run"])
    [run] = composed(command)
    assert task["num_nodes"] == 2 and placement.MASTER in task["run"]
    assert (run["workers"], run["network"]["machine"], run["network"]["machines"]) == (2, 1, 2)


def test_a_job_of_kubernetes_may_shape_and_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_NODEID", "SLURM_NNODES"):
        monkeypatch.delenv(name)
    service, job = yaml.safe_load_all((FILES / "host_kubernetes.yaml").read_text())
    [container] = job["spec"]["template"]["spec"]["containers"]
    [run] = composed(shlex.join(container["command"][3:]))
    assert container["command"][:3] == ["python", "-m", "harness"]
    assert (run["network"]["machine"], run["network"]["machines"]) == (1, 2)
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == run["workers"] == 2
    added = container["securityContext"]["capabilities"]["add"]
    assert {"NET_ADMIN", "SYS_ADMIN"} <= set(added)
    [master] = [each["value"] for each in container["env"] if each["name"] == placement.MASTER]
    pod, domain = master.split(".")
    assert pod == f"{job['metadata']['name']}-0" and domain == service["metadata"]["name"]
    assert job["spec"]["template"]["spec"]["subdomain"] == domain
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
