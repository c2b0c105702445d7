"""The doctor: its verdict is what a run then does, and what is missing it tells how to get."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from compressors import kernels
from harness import locks
from harness.config.scales import compose
from harness.doctor import accelerators, kernel, machine, permissions, trial
from harness.doctor.composition import build
from harness.doctor.findings import Finding, told
from harness.doctor.show import plain, verdict
from harness.emulation import capabilities
from tests.emulation.inside import MAPPED
from tests.emulation.test_rootless import as_user, interpreter
from tests.launching import TINY, completed, harness, network_namespaces, until

DELAYED = (*TINY, "profile.delay_ms=5")


def doctor(
    *arguments: str, before: tuple[str, ...] = (), python: str = sys.executable, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with `more` in its environment."""
    command = [*before, python, "-m", "harness.doctor", *arguments]
    return completed(command, 120, env=os.environ | more)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    """By name, of a `--json` answer."""
    return {found["name"]: found for found in json.loads(done.stdout)["findings"]}


def runs(*overrides: str):
    return [build(settings) for settings in compose(overrides)]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.launch
@pytest.mark.parametrize(
    "overrides",
    [
        TINY,
        DELAYED,  # needs netem
        (*TINY, "network.congestion_control=nonesuch"),
        (*TINY, "emulation.compute=measured", "dataset=cifar10", "dataset.folder=/nowhere"),
        (*TINY, "device=cuda", "workers=64"),
        ("-m", *TINY, "method=allreduce,topk"),
    ],
    ids=" ".join,
)
def test_the_exit_status_says_whether_the_run_then_works(overrides, tmp_path):
    said = doctor("--json", *overrides, f"results={tmp_path}")
    assert not said.stderr, said.stderr
    assert not list(tmp_path.iterdir())
    ran = harness(*overrides, results=tmp_path)
    assert said.returncode == (1 if ran.returncode else 0), said.stdout + ran.stdout + ran.stderr
    answer = json.loads(said.stdout)
    assert answer["can_run"] == (said.returncode == 0)
    assert answer["can_run"] == ("missing" not in {f["mark"] for f in answer["findings"]})


def test_settings_that_no_machine_can_run_are_refused_as_a_run_refuses_them(tmp_path):
    said = doctor("--json", *TINY, "workers=0", f"results={tmp_path}")
    assert said.returncode and not said.stdout
    [line] = said.stderr.splitlines()
    assert line.endswith("workers must be a whole number in [1, 100000], got 0")


@pytest.mark.launch
def test_it_leaves_nothing_behind_and_text_says_the_same_as_json(tmp_path):
    namespaces, interfaces = network_namespaces(), set(os.listdir("/sys/class/net"))
    as_text, as_json = doctor(*TINY), doctor("--json", *TINY)
    until(lambda: network_namespaces() <= namespaces, "all namespaces gone", 10)
    assert set(os.listdir("/sys/class/net")) == interfaces
    names = [line.split()[1] for line in as_text.stdout.splitlines() if line[:3] == "  o"]
    ok = [name for name, found in findings(as_json).items() if found["mark"] == "ok"]
    assert names == ok
    assert "can run here: python -m harness workers=2" in as_text.stdout.splitlines()[-1]


def test_an_override_that_hydra_refuses_is_one_message_and_status_1():
    done = doctor("nonesuch=1")
    assert done.returncode == 1
    assert "nonesuch" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.launch
def test_missing_programs_are_told_with_their_package(tmp_path):
    done = doctor("--json", *TINY, PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout  # a run without competing flows needs none
    found = findings(done)
    assert found["namespaces"]["mark"] == "ok"
    assert found["iperf3"]["mark"] == "warn"
    assert found["iperf3"]["enable"] == "sudo apt-get install iperf3"


def test_iperf3_is_needed_by_competing_flows_alone_and_not_too_old(tmp_path, monkeypatch):
    [quiet] = runs(*TINY)
    busy = quiet._replace(run=replace(quiet.run, profile=Busy()))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for version, marks in {"3.7": ("warn", "missing"), "3.9": ("ok", "ok")}.items():
        script = tmp_path / "iperf3"
        write(script, f"#!/bin/sh\necho 'iperf {version} (cJSON 1.5.2)'\n")
        script.chmod(0o755)
        for asked, mark in zip((quiet, busy), marks, strict=True):
            [found] = [f for f in machine.programs([asked]) if f.name == "iperf3"]
            assert found.mark == mark and version in found.found
            assert "3.9" in found.found


class Busy:
    """A profile with competing flows."""

    def extremes(self):
        from profiles.base import Extremes

        return Extremes(1.0, 1.0, flows=2)


@pytest.mark.parametrize("there", [True, False])
def test_delay_needs_netem_and_rates_do_not(there, monkeypatch):
    kinds = dict.fromkeys([*capabilities.NEEDED, *capabilities.OTHERS], "")
    answer = trial.Trial(kinds | {"netem": "" if there else "not there"}, [""])
    monkeypatch.setattr(trial, "attempt", lambda networks: answer)
    for overrides, mark in ((TINY, "warn"), (DELAYED, "missing")):
        [found] = [f for f in kernel.links(runs(*overrides)) if f.name == "netem"]
        assert found.mark == ("ok" if there else mark)
        assert there or "sch_netem" in found.enable
    assert there or "delay_ms 5" in found.means
    [wan] = [f for f in kernel.links(runs(*TINY, "workers=4", "network=wan")) if f.name == "netem"]
    assert wan.mark == ("ok" if there else "missing")


def test_a_kind_of_link_that_the_kernel_lacks_is_named_with_its_module(monkeypatch):
    kinds = dict.fromkeys([*capabilities.NEEDED, *capabilities.OTHERS, "netem"], "")
    answer = trial.Trial(kinds | {"ifb": "try ifb: not there"}, [])
    monkeypatch.setattr(trial, "attempt", lambda networks: answer)
    found = {f.name: f for f in kernel.links([])}
    assert found["ifb"].mark == "missing" and "modprobe ifb" in found["ifb"].enable
    assert set(kernel.MODULES) == set(capabilities.NEEDED)


@pytest.mark.parametrize("sysctl, value, root, enable", [
    ("kernel/unprivileged_userns_clone", "0", False, "kernel.unprivileged_userns_clone=1"),
    ("kernel/unprivileged_userns_clone", "0", True, None),
    ("kernel/unprivileged_userns_clone", "1", False, None),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", False,
     "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", True, None),
    ("kernel/apparmor_restrict_unprivileged_userns", "0", False, None),
    ("user/max_user_namespaces", "0", False, "user.max_user_namespaces=15000"),
    ("user/max_user_namespaces", "0", True, None),
    ("user/max_net_namespaces", "4", True, "user.max_net_namespaces=15000"),
    ("user/max_net_namespaces", "5", True, None),
])  # fmt: skip
def test_the_switches_of_distributions(sysctl, value, root, enable, tmp_path):
    write(tmp_path / "sys" / sysctl, value + "\n")
    found = permissions.closed_switches(tmp_path, namespaces=5, root=root)
    if enable is None:
        assert not found
    else:
        [switch] = found
        assert switch.value == value and f"sudo sysctl -w {enable} " in switch.enable


def test_a_kernel_without_such_switches_has_none_closed(tmp_path):
    assert not permissions.closed_switches(tmp_path, namespaces=5, root=False)


@pytest.mark.network
def test_a_limit_of_namespaces_is_told_with_the_refusal_and_the_command():
    limited = 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"'
    done = doctor("--json", *TINY, before=("unshare", *MAPPED, "sh", "-c", limited, "sh"))
    assert done.returncode == 1, done.stderr
    found = findings(done)
    assert "No space left on device" in found["namespaces"]["found"]
    switch = found["user.max_net_namespaces"]
    assert switch["mark"] == "missing" and "sudo sysctl -w" in switch["enable"]


@pytest.mark.network
def test_an_ordinary_user_is_told_what_he_can_run():
    python, reason = interpreter()
    if not python:
        pytest.skip(f"no user namespace with a python in it: {reason}")
    done = doctor("--json", *TINY, "results=/tmp/nobodys", before=tuple(as_user()), python=python)
    assert done.returncode == 0, done.stdout + done.stderr
    found = findings(done)
    assert found["user"]["found"].startswith("ordinary user")
    assert found["network"]["mark"] == "ok"
    assert not Path("/tmp/nobodys").exists()


@pytest.mark.parametrize("file, text, what", [
    ("proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2", "WSL"),
    (".dockerenv", "", "container"),
    ("proc/cpuinfo", "flags\t\t: fpu vme hypervisor lahf_lm\n", "virtual machine"),
    ("proc/cpuinfo", "model name\t: UML\nvendor_id\t: User Mode Linux\n", "user-mode Linux"),
    ("proc/cpuinfo", "flags\t\t: fpu vme\n", "real machine"),
])  # fmt: skip
def test_what_the_machine_runs_in(file, text, what, tmp_path):
    write(tmp_path / "proc/version", "Linux version 6.1")
    write(tmp_path / "proc/cpuinfo", "")
    write(tmp_path / file, text)
    assert kernel.around(tmp_path) == what


def test_a_run_that_goes_on_and_ledgers_of_dead_ones_are_told(tmp_path):
    lock = tmp_path / "lock"
    with locks._held(lock, "for a law"):
        [held] = machine.others(lock, tmp_path)
    assert held.mark == "warn" and "going on" in held.found and "for a law" in held.found
    write(tmp_path / "eth7.ledger.json", "{}")
    free, left = machine.others(lock, tmp_path)
    assert free.mark == "ok"
    assert left.mark == "warn" and "`python -m harness.doctor --clean`" in left.enable


def test_too_little_memory_is_a_warning_with_the_need(tmp_path):
    write(tmp_path / "meminfo", "MemTotal: 2097152 kB\nMemAvailable:    1048576 kB\n")
    [found] = machine.memory(runs(*TINY, "workers=8"), tmp_path / "meminfo")
    assert found.mark == "warn" and found.found == "1.0 GiB available"


def test_computing_workers_that_share_cores_are_a_warning():
    many = f"workers={4 * (os.cpu_count() or 1)}"
    [measured] = machine.cores(runs(many, "device=cpu"))
    [replayed] = machine.cores(runs(*TINY, many))
    assert (measured.mark, replayed.mark) == ("warn", "ok")


def test_a_probe_that_breaks_is_a_line_and_no_traceback():
    def breaks():
        yield Finding("first", "ok", "fine")
        raise ZeroDivisionError("on purpose")

    [found] = told("cores", breaks)
    assert found == Finding("cores", "warn", "could not tell: ZeroDivisionError: on purpose")


def test_an_interface_that_cannot_be_shaped_is_told_and_not_touched(monkeypatch):
    monkeypatch.setenv("GRADNET_TOKEN", "of these two machines")
    machines = ("network.machine=0", "network.machines=2", "network.master=10.0.0.1")
    asked = runs("network=host", "network.interface=lo", *machines, "workers=2", "steps=1")
    assert trial.asked(asked) == []  # other machines have to take part: it cannot come up here
    [found] = [kernel._interface(each.run) for each in asked]
    assert found.mark == "missing" and "shape lo: it is a loopback" in found.found
    assert all(finding.mark == "ok" for finding in kernel.tcp(asked))


def test_the_verdict_names_what_is_missing():
    groups = {"a": [Finding("x", "ok", ""), Finding("y", "missing", "", "", "do this")]}
    assert verdict(groups, "run") == (False, "cannot run here: run (missing: y)")
    assert "-> do this" in plain(groups, "run")


@pytest.mark.parametrize(("name", "broken", "wrong", "who"), [
    ("signs", "vote", lambda payloads, scale, result: result.fill(scale), "SignSGD"),
    ("quantise", "average", lambda *rest: None, "QSGD"),
    ("lowrank", "product", lambda *rest: None, "PowerSGD"),
])  # fmt: skip
def test_kernels_with_other_results_than_numpy_are_named(name, broken, wrong, who, monkeypatch):
    found = kernels.compiled()
    [finding] = accelerators.compiled()
    assert (finding.mark, finding.found) == ("ok", f"{kernels.path()}, as numpy")
    monkeypatch.setattr(getattr(found, name), broken, wrong)
    [finding] = accelerators.compiled()
    assert finding.mark == "missing" and f"{who}" in finding.found, finding
    assert finding.enable == f"export {kernels.CHOICE}=numpy"
    assert kernels.compiled() is found


def test_without_kernels_compression_is_slower(monkeypatch):
    with kernels.by_numpy():
        [finding] = accelerators.compiled()
    assert finding.mark == "warn" and finding.found == "numpy: asked for"
