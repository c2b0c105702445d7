"""Where a machine forbids namespaces, scale=laptop runs in virtual time, and says so everywhere."""

import json
import subprocess
import sys

import pytest
from omegaconf import open_dict, read_write

from harness.config import sweep
from harness.emulation import user_namespace
from harness.reporting.analysis import load
from harness.reporting.report import report
from harness.validation import checked
from tests.launching import afresh, runs

FORBIDDEN = "unshare: not permitted"
WITHOUT = """
import os, runpy, sys
from harness.emulation.libc import call
if child := os.fork():  # who unshares has one thread
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
user, group = os.getuid(), os.getgid()
call("unshare", 0x10000000)  # CLONE_NEWUSER
for name, content in {
    "self/uid_map": f"0 {user} 1",
    "self/setgroups": "deny",
    "self/gid_map": f"0 {group} 1",
    "sys/user/max_net_namespaces": "0",
}.items():
    with open(f"/proc/{name}", "w") as file:
        file.write(content)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
SMALL = ("workers=2", "steps=3", "model.width=8")


@pytest.fixture
def forbidden(monkeypatch):
    monkeypatch.setattr(user_namespace, "refused", lambda: FORBIDDEN)


def used(*overrides: str, by_experiment: tuple[str, ...] = ()):
    """Settings as this machine would use them; what an experiment says is no choice of the user."""
    with sweep.hydra():
        config = sweep.load([*overrides, *by_experiment]).copy()
        with read_write(config), open_dict(config):
            config.hydra.overrides.task = list(overrides)
        return sweep.usable_settings(config)


@pytest.mark.usefixtures("forbidden")
def test_it_is_the_run_that_virtual_time_by_name_is_and_says_why():
    asked = ("+experiment=dc2_imagenet_dynamic", "scale=laptop", "network.queue_ms=20")
    found, named = used(*asked), used(*asked, "network=simulated")
    assert found["network.in_place_of"] == f"netns: {FORBIDDEN}"
    assert named["network.in_place_of"] is None and found["network.queue_ms"] == 20
    assert found.run_dir() == named.run_dir()
    assert checked(found).network.in_process


@pytest.mark.usefixtures("forbidden")
def test_a_dumbbell_stays_one():
    found = used("scale=laptop", by_experiment=("network=dumbbell",))
    assert found["network._target_"].endswith("SimulatedDumbbell")
    assert found["network.in_place_of"].startswith("dumbbell: ")


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize(
    "overrides",
    [
        ("scale=laptop", "network=netns"),
        ("scale=laptop", "network=dumbbell"),
        ("scale=laptop", "network=wan"),
        ("scale=laptop", "network.congestion_control=reno"),
        ("scale=paper",),
        ("scale=laptop", "network=calibrated"),
    ],
    ids=" ".join,
)
def test_what_was_asked_for_by_name_and_what_is_no_laptop_stays(overrides):
    assert used(*overrides)["network"].get("in_place_of") is None


def test_where_packets_are_allowed_nothing_is_replaced(monkeypatch):
    monkeypatch.setattr(user_namespace, "refused", lambda: "")
    assert used("scale=laptop")["network._target_"].endswith("star.Star")


@pytest.mark.network
def test_on_a_machine_without_namespaces_the_quickstart_ends_with_a_report_that_says_so(tmp_path):
    asked = ("+experiment=quickstart", "method=allreduce", *SMALL, f"results={tmp_path}")
    done = without_namespaces("harness", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "virtual time, no packets, in place of network=netns: unshare" in done.stdout
    assert "no proof: the network was simulated" in done.stdout
    [found] = runs(tmp_path)
    summary, environment = (
        json.loads((found / f"{name}.json").read_text()) for name in ("summary", "environment")
    )
    for told in (summary["network"], environment["network"], load.config(found)["network"]):
        assert told["in_place_of"].startswith("netns: unshare")
    assert summary["network"]["kind"] == "Simulated"
    insisted = without_namespaces("harness", *asked, "network=netns")
    assert insisted.returncode == 1 and "unshare" in insisted.stdout + insisted.stderr
    assert without_namespaces("harness.doctor", *asked).returncode == 0


def test_a_report_tells_why_a_network_was_replaced(tmp_path, capsys):
    from tests import records_by_hand as by_hand

    network = {"_target_": "harness.virtual.network.Simulated", "in_place_of": "netns: because"}
    for name, told in (("a", network), ("b", network | {"in_place_of": None})):
        config = by_hand.config("allreduce", network=told, seed=len(name))
        by_hand.run(tmp_path / name, config, [by_hand.step(n) for n in range(6)])
    assert load.runs(tmp_path).setting.nunique() == 1
    report(tmp_path / "a", out=tmp_path / "report")
    assert "in place of network=netns: because" in capsys.readouterr().out


def without_namespaces(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m module` where no more network namespaces are allowed."""
    return afresh([sys.executable, "-c", WITHOUT, module, *arguments], 120)
