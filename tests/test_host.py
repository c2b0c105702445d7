"""A run on two machines, each with a command of its own; here they are namespaces and a cable."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from pyroute2 import IPRoute

from harness.config.search_path import CONF
from harness.emulation import nic, placement
from harness.emulation.host import Host
from harness.emulation.libc import call
from harness.emulation.namespaces import Namespace
from harness.emulation.user_namespace import MOUNTS
from harness.locks import PLACES
from harness.reporting.analysis.load import runs
from tests import fork_server, launching
from tests.aftermath import SETTLED
from tests.emulation import inside, machines
from tests.emulation.inside import Flat
from tests.emulation.machines import INTERFACE, address
from tests.launching import ROOT, TINY, until

DEADLINE_S = 100
LAW_S = 280  # under pytest's own limit


def whole_run(law: Callable[[], None]) -> Callable[[], None]:
    """A test that runs `law`, which starts whole runs, in namespaces; `inside` has less time."""

    def test() -> None:
        who = "root" if os.geteuid() == 0 else "rootless"
        command = [sys.executable, "-m", inside.__name__, law.__module__, law.__name__, who]
        done = launching.forked(command, LAW_S, "project")
        assert done.returncode == 0, done.stderr

    test.law = law  # type: ignore[attr-defined]
    test.__name__, test.__module__ = law.__name__, law.__module__
    return pytest.mark.launch(test)


def own_locks() -> None:
    """Machines have a lock each; these two are on one."""
    call("unshare", MOUNTS)
    call("mount", b"tmpfs", os.fsencode(PLACES[0]), b"tmpfs", 0, None)


class Job:
    """Two machines and the command that each of them was given."""

    def __init__(
        self, hosts: tuple[Namespace, Namespace], forks: list[socket.socket], folder: Path
    ) -> None:
        self.hosts, self.forks, self.folder = hosts, forks, folder
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text("shared by both machines")
        self.before = [self.state(number) for number in (0, 1)]
        self.commands: list[subprocess.Popen[str]] = []

    def results(self, number: int) -> Path:
        return self.folder / f"machine{number}"

    def state(self, number: int) -> str:
        with self.hosts[number].entered():
            return machines.state()

    def start(self, number: int, *overrides: str) -> subprocess.Popen[str]:
        """Give machine `number` its command."""
        settings = {"interface": INTERFACE, "machine": number, "machines": 2, "master": address(0),
                    "ledger": self.folder / "ledgers" / str(number),
                    "token": self.folder / "token"}  # fmt: skip
        options = [f"network.{key}={value}" for key, value in settings.items()]
        words = (*TINY, "network=host", *options, *overrides)
        command = launching.command(*words, results=self.results(number))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        forks = self.forks[number]
        started = fork_server.Forked(forks, command, cwd=ROOT, text=True, process_group=0, **pipes)
        self.commands.append(started)
        return started

    def outputs(self) -> list[str]:
        return [command.communicate(timeout=DEADLINE_S)[0] for command in self.commands]

    def run_dir(self, number: int) -> Path:
        place = "*/*/status.json" if number == 0 else "*/.machines/*/status.json"
        [found] = self.results(number).glob(place)
        return found.parent

    def shaped(self) -> bool:
        return all("4d4e:" in self.state(number) for number in (0, 1))

    def training(self) -> bool:
        try:
            rows = [(self.run_dir(n) / "steps.csv").read_text().splitlines() for n in (0, 1)]
        except (ValueError, FileNotFoundError):
            return False
        return all(len(each) > 3 for each in rows)

    def restored(self) -> None:
        until(lambda: [self.state(n) for n in (0, 1)] == self.before, "restored", DEADLINE_S)
        assert not list(self.folder.glob("ledgers/*/*.json"))


@contextmanager
def job() -> Iterator[Job]:
    with machines.pair() as hosts:
        forks = []
        for host in hosts:
            with host.entered():
                forks.append(fork_server.here(own_locks))
        with tempfile.TemporaryDirectory() as folder:  # which what is forked must not take away
            made = Job(hosts, forks, Path(folder))
            yield made
            made.restored()


def ending(run_dir: Path) -> dict:
    return json.loads((run_dir / "status.json").read_text())


@whole_run
def test_two_machines_train_together_and_machine_0_has_all_results() -> None:
    with job() as two:
        for number in (0, 1):
            two.start(number, "emulation.compute=measured")
        until(two.shaped, "both interfaces are shaped", DEADLINE_S)
        outputs = two.outputs()
        assert [command.returncode for command in two.commands] == [0, 0], outputs
        [run] = runs(two.results(0)).to_dict("records")
        assert run["state"] == "succeeded" and run["left_out"] == "", run
        summary = json.loads((two.run_dir(0) / "summary.json").read_text())
        names = [probe["link"] for probe in summary["proof"]["probe"]]
        assert names == ["up0-down1", "up1-down0"], names
        assert set(summary["proof"]["passed_bytes"]) == {"up0", "down0", "up1", "down1"}
        steps = (two.run_dir(0) / "steps.csv").read_text().splitlines()[1:]
        assert [row.split(",")[:2] for row in steps] == [
            [str(s), r] for s in range(6) for r in "01"
        ]
        links = (two.run_dir(0) / "links.csv").read_text()
        assert all(f",{name}," in links for name in ("up0", "down0", "up1", "down1"))
        assert ending(two.run_dir(1))["state"] == "succeeded"
        evaluations = (two.run_dir(0) / "evaluations.csv").read_text().splitlines()
        assert len(evaluations) > 1 and len(set(evaluations)) == len(evaluations)
        environment = json.loads((two.run_dir(0) / "environment.json").read_text())
        assert len(environment["network"]["machines"]) == 2


LONG = ("steps=4000",)


def both_training(two: Job) -> None:
    two.start(0, *LONG)
    two.start(1, *LONG)
    until(two.training, "both machines train", DEADLINE_S)
    assert two.shaped()


@whole_run
def test_a_machine_that_disappears_ends_the_run_on_the_other_by_name() -> None:
    with job() as two:
        both_training(two)
        processes = launching.processes(str(two.run_dir(1)))
        two.commands[1].kill()
        for process in processes:
            os.kill(process, signal.SIGKILL)
        output = two.outputs()[0]
        assert two.commands[0].returncode == 1 and "machine 1 disappeared" in output, output
        assert ending(two.run_dir(0))["state"] == "failed"


@whole_run
def test_kill_9_of_one_runner_ends_both_and_restores_both() -> None:
    with job() as two:
        both_training(two)
        two.commands[0].kill()
        outputs = two.outputs()
        assert "machine 0: the runner stopped or died" in outputs[1], outputs
        assert ending(two.run_dir(1))["state"] == "interrupted"


@whole_run
def test_ctrl_c_on_one_machine_ends_both_in_order() -> None:
    with job() as two:
        both_training(two)
        two.commands[1].send_signal(signal.SIGINT)
        outputs = two.outputs()
        assert "machine 1: stopped by the user" in outputs[0], outputs
        assert [ending(two.run_dir(n))["state"] for n in (0, 1)] == ["interrupted"] * 2
        assert two.commands[1].returncode == 130


@whole_run
def test_a_run_past_its_time_is_ended_and_its_interface_restored() -> None:
    with job() as two:
        two.start(0, *LONG, "network.time_limit_s=15")
        two.start(1, *LONG)
        for output in two.outputs():
            assert "eth1 is no longer shaped: network.time_limit_s = 15 is over" in output, output


@whole_run
def test_settings_that_differ_are_named_on_both_machines() -> None:
    with job() as two:
        two.start(0)
        two.start(1, "profile.rate_mbit=100")
        for output in two.outputs():
            assert "profile.rate_mbit is 200 on machine 0 and 100 on 1" in output, output


@whole_run
def test_waiting_for_a_machine_ends_in_time_and_with_ctrl_c() -> None:
    with job() as two:
        two.start(0, "network.join_s=2")
        [output] = two.outputs()
        assert "machines [1] did not come to 10.0.0.1:29400 in time" in output, output
        waiting = two.start(0, "rerun=true")
        until(lambda: "29400" in listening(two.hosts[0]), "it waits", DEADLINE_S)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(6) == 130


def listening(host: Namespace) -> str:
    with host.entered():
        return subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout


GOOD: dict[str, Any] = {"interface": "lo", "machine": 0, "machines": 2, "master": "10.0.0.1"}


@pytest.mark.parametrize("more", [{"delay_ms": 5.0}, {"loss": 0.01}])
def test_profiles_that_ask_for_more_than_rates_are_refused(more: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"host shapes rates only.*{next(iter(more))}"):
        Host(**GOOD).check(2, Flat(10.0, **more), 1.0)


def test_without_the_right_to_shape_one_line_says_so(tmp_path: Path) -> None:
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    options = [f"network.{key}={value}" for key, value in GOOD.items()]
    command = launching.command(*TINY, "network=host", *options, results=tmp_path)
    done = subprocess.run(
        [*without, *command], cwd=launching.ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "host needs root on every machine" in done.stderr, done


@pytest.mark.parametrize("names", [
    ("SLURM_NODEID", "SLURM_NNODES"),
    ("GROUP_RANK", "GROUP_WORLD_SIZE"),
])  # fmt: skip
def test_what_started_the_commands_knows_the_place_of_a_machine(monkeypatch, names):
    monkeypatch.setenv("SLURM_NODEID", "0")  # under torchrun its own numbers count
    for name, value in zip(names, "34", strict=True):
        monkeypatch.setenv(name, value)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", ["network=host"])
    assert (config.network.machine, config.network.machines) == (3, 4)


@pytest.mark.parametrize(("said", "told"), [
    ({}, "got null, and neither MASTER_ADDR nor SLURM_JOB_NODELIST is set"),
    ({"MASTER_ADDR": "127.0.1.1"}, "which is 127.0.1.1; write it yourself"),
    ({"MASTER_ADDR": "no such.name"}, "got no such.name by MASTER_ADDR: "),
    ({"SLURM_JOB_NODELIST": "n[1-2]", "PATH": ""}, "`scontrol show hostnames n.1-2.` failed: "),
])  # fmt: skip
def test_a_first_machine_that_others_cannot_reach_is_refused(monkeypatch, said, told):
    for name in (placement.MASTER, placement.NODES):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    placement.master.cache_clear()
    with pytest.raises(ValueError, match="master must be the IPv4 address of machine 0.*" + told):
        Host(**GOOD | {"master": None})
    placement.master.cache_clear()


@whole_run
def test_the_interface_is_the_one_towards_the_first_machine() -> None:
    with machines.pair() as hosts:
        for number, host in enumerate(hosts):
            with host.entered(), IPRoute() as ip:
                said = {"interface": None, "machine": number, "master": address(0)}
                assert Host(**GOOD | said).interface == INTERFACE
                assert nic.towards(ip, address(1)) == INTERFACE
                with pytest.raises(ValueError, match="interface must be .* got null: .* 192.0.2.1"):
                    Host(**GOOD | said | {"master": "192.0.2.1"})


ALONE = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {PLACES[0]} && exec "$@"', "sh"]


@whole_run
def test_torchrun_says_which_machine_is_which() -> None:
    with machines.pair() as hosts, tempfile.TemporaryDirectory() as folder:
        torchrun = [*ALONE, sys.executable, "-m", "torch.distributed.run", "--nnodes=2"]
        torchrun += ["--nproc-per-node=1", f"--master-addr={address(0)}", "--master-port=29501"]
        asked = [*TINY, "network=host", f"network.ledger={folder}/ledgers", "report=false"]
        commands = []
        for number, host in enumerate(hosts):
            line = [*torchrun, f"--node-rank={number}", "-m", "harness", *asked]
            with host.entered():
                command = subprocess.Popen(
                    [*line, f"results={folder}/results"],
                    cwd=ROOT,
                    env=os.environ | {"GRADNET_TOKEN": "shared by both machines"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            commands.append(command)
        outputs = [command.communicate(timeout=DEADLINE_S)[0] for command in commands]
        [run_dir] = launching.runs(Path(folder, "results"))
        assert launching.state(run_dir) in SETTLED, outputs
        assert launching.own_reasons(run_dir) == []
        assert not list(Path(folder).glob("ledgers/*.json"))
        environment = json.loads((run_dir / "environment.json").read_text())
        assert environment["network"]["interface"] == INTERFACE
        assert environment["network"]["master"] == address(0)
