"""Slurm on this machine: munge, a controller and nodes that can be lost as by a cut of power.

Every node is process 1 of a process namespace of its own, so that killing it takes whatever it
runs. All is in one folder and listens on the loopback, in the test's own network where it has one.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pyroute2 import IPRoute

from harness.locks import PLACES
from tests.launching import ROOT, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "unshare")
SBIN = "/usr/sbin:/sbin"
LOST_S = 5  # without a word from a node, before its jobs are queued again
AGAIN_S = 10  # before a job that was queued again may begin
STOP_S = 10
ADDRESSED = "addressed"  # an interface of a test's own network
# Runs what follows as process 1 of a process namespace, with a machine's lock of its own.
OWN_LOCK = f'mount -t tmpfs none {PLACES[0]} && exec "$@"'
MACHINE = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c", OWN_LOCK, "sh"]
CONF = """
ClusterName=tests
SlurmctldHost={controller}
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={again_s}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MailProg=/bin/true
MaxArraySize=1001
ReturnToService=2
SlurmdTimeout={lost_s}
MessageTimeout=5
KillWait=5
JobRequeue=1
"""


def missing() -> str:
    """What of Slurm this machine lacks, or "" ."""
    path = os.pathsep.join([os.environ.get("PATH", ""), SBIN])
    lacking = [each for each in PROGRAMS if shutil.which(each, path=path) is None]
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root here"
    return f"no {', '.join(lacking)}; scripts/system-packages test" if lacking else ""


@dataclass
class SlurmNode:
    """A node of the cluster: where its daemon listens, and by what it is started."""

    name: str
    port: int
    address: str = "127.0.0.1"
    before: Sequence[str] = ()  # such as `nsenter ...`, into a network


@dataclass
class Slurm:
    """A cluster that is up; its folder has the logs."""

    folder: Path
    nodes: list[SlurmNode]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """For Slurm's commands, and those that call them."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], SBIN])
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def done(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command of Slurm, run to its end."""
        options = {"cwd": ROOT, "env": self.environment, "capture_output": True, "text": True}
        return subprocess.run(command, **options)

    def told(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = self.done(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def lose(self, name: str) -> None:
        """Kill -9 a node's daemon, and with it all that it runs."""
        process = self.daemons.pop(name)
        [daemon] = _children(process.pid)
        os.kill(daemon, 9)
        process.wait(STOP_S)

    def start(self, node: SlurmNode) -> None:
        """Start a node's daemon, which the controller hears of by itself."""
        daemon = ["slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", node.name]
        _daemon(self, node.name, [*node.before, *MACHINE, *daemon])

    def states(self) -> set[str]:
        return set(self.told("sinfo", "-h", "-N", "-o", "%t").split())


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in found.split()]


@contextmanager
def slurm(nodes: Sequence[SlurmNode], controller: str = "127.0.0.1") -> Iterator[Slurm]:
    """A cluster of `nodes`, all idle; nothing of it is left afterwards."""
    with TemporaryDirectory(prefix="slurm") as name, ExitStack() as held:
        held.enter_context(_an_address())
        Path(name).chmod(0o755)  # munge wants its socket to be in reach of all
        cluster = Slurm(Path(name), list(nodes))
        _write(cluster, controller)
        held.callback(_stop, cluster)
        _start(cluster)
        try:
            until(lambda: cluster.states() == {"idle"}, "nodes are idle", 30)
        except AssertionError:
            logs = sorted(cluster.folder.glob("*.log"))
            raise AssertionError("\n".join(path.read_text()[-3000:] for path in logs)) from None
        yield cluster


@contextmanager
def _an_address() -> Iterator[None]:
    """Beside the loopback's: with that alone, glibc finds not even a number that Slurm asks for."""
    with IPRoute() as ip:
        if any(link.get_attr("IFLA_IFNAME") != "lo" for link in ip.get_links()):
            yield
            return
        ip.link("add", ifname=ADDRESSED, kind="bridge")
        [index] = ip.link_lookup(ifname=ADDRESSED)
        try:
            ip.addr("add", index=index, address="198.51.100.1", prefixlen=24)
            ip.link("set", index=index, state="up")
            yield
        finally:
            ip.link("del", index=index)


def _write(cluster: Slurm, controller: str) -> None:
    told = {"folder": cluster.folder, "controller": f"{socket.gethostname()}({controller})"}
    text = CONF.format(port=free_port(), lost_s=LOST_S, again_s=AGAIN_S, **told)
    for each in cluster.nodes:
        where = f"NodeHostname={socket.gethostname()} NodeAddr={each.address} Port={each.port}"
        text += f"NodeName={each.name} {where} CPUs=1 State=UNKNOWN\n"
    names = ",".join(each.name for each in cluster.nodes)
    text += f"PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP\n"
    (cluster.folder / "slurm.conf").write_text(text)
    (cluster.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    (cluster.folder / "state").mkdir()
    key = cluster.folder / "munge.key"
    key.touch(mode=0o400)
    key.chmod(0o600)
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)


def _start(cluster: Slurm) -> None:
    folder = cluster.folder
    files = {each: folder / f"munge.{each}" for each in ("socket", "pid", "seed")}
    named = [
        f"--{each if each == 'socket' else each + '-file'}={path}" for each, path in files.items()
    ]
    munge = ["munged", "--foreground", f"--key-file={folder}/munge.key", *named]
    _daemon(cluster, "munged", munge)
    until(files["socket"].exists, "munge answers", 10)
    conf = str(folder / "slurm.conf")
    _daemon(cluster, "slurmctld", ["slurmctld", "-D", "-f", conf])
    for each in cluster.nodes:
        cluster.start(each)


def _daemon(cluster: Slurm, name: str, command: Sequence[str]) -> None:
    log = (cluster.folder / f"{name}.out.log").open("wb")
    with log:
        cluster.daemons[name] = subprocess.Popen(
            command, env=cluster.environment, stdout=log, stderr=log, start_new_session=True
        )


def _stop(cluster: Slurm) -> None:
    """Nodes first, with what they run."""
    for name in reversed(list(cluster.daemons)):
        process = cluster.daemons.pop(name)
        process.kill()
        process.wait(STOP_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
