"""A foreign command on every node: start it, read its lines, and wait for it."""

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from setproctitle import setproctitle

from harness.around.settings import Asked
from harness.emulation import seclusion
from harness.emulation.network import Network
from harness.emulation.user_namespace import shell_status
from harness.records import status
from harness.runner import limits, torch_network
from harness.runner.agents import OWN_CHILDREN

READ_BYTES = 1 << 16
MOST_LINE_BYTES = 1 << 16  # of output without an end of line
ENDS = re.compile(rb"[\r\n]")  # of a line; progress bars have the first
TELLS = re.compile(r"\w")
CANNOT_START = 127  # as a shell has it
WHY = re.compile(r"(Error|Exception): \S")


class OutputLine(NamedTuple):
    """A line of output and its node."""

    node: int
    text: str
    came: float  # time.monotonic() when its end was read; lines that were read at once share it


def environment(asked: Asked, network: Network, node: int) -> dict[str, str]:
    """Return the command's variables on `node`, for all common launchers and libraries.

    torchrun takes its options' defaults from PET_... variables. A thread count of the user stays.
    """
    rank, world, master = str(node), str(network.size), network.addresses[0]
    port, threads = str(torch_network.PORT), max(1, (os.cpu_count() or 1) // network.size)
    return {
        "OMP_NUM_THREADS": str(threads),
        **os.environ,
        **torch_network.environment(network.interface),
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "NODE_RANK": rank,
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "PET_NNODES": world,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": str(asked.workers_per_node),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
        "PET_LOCAL_ADDR": network.addresses[node],
        "HOSTNAME": f"node{node}",
        "PYTHONUNBUFFERED": "1",  # a line is timed when it comes
        "TMPDIR": seclusion.TEMPORARY,
    }


def _be_first_process(
    asked: Asked, network: Network, node: int, output: int, ended: int
) -> NoReturn:
    """Start the command on `node`, write its exit status to `ended`, and wait for its orphans.

    If the command itself were process 1, it would lack default signals and have foreign orphans.
    """
    address, port = network.addresses[0], torch_network.PORT
    with network.entered(node):
        command = subprocess.Popen(
            asked.command.of_node(node, network.size, address, port, asked.seed),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(asked, network, node),
            start_new_session=True,
            preexec_fn=limits.confine,
        )
    command.returncode = code = 0  # the loop waits for it
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor != ended:  # the runner's, the run's files, and the command's output
            with suppress(OSError):  # of the listing itself
                os.dup2(nothing, descriptor)
    with suppress(ChildProcessError):
        while True:
            process, wait_status = os.wait()
            if process == command.pid:
                code = shell_status(wait_status)
                os.write(ended, bytes([code]))
    os._exit(code)


class Nodes:
    """The command on every node, each in namespaces of its own, which end with the run."""

    def __init__(self, run_dir: Path, asked: Asked, network: Network) -> None:
        self._run_dir = run_dir
        self.running: dict[int, int] = {}  # node -> its process 1, while the command runs
        self.endings: dict[int, int] = {}  # node -> status as a shell has it, in order
        self._pipes: dict[int, int] = {}  # descriptor -> node
        self._endings: dict[int, int] = {}  # node -> descriptor that its process 1 writes to
        self._rest: dict[int, bytes] = {}  # of a line, by node
        self._logs = [self.log(run_dir, node).open("ab", buffering=0) for node in network.local]
        self._last: dict[int, str] = {}  # line that says something, by node
        self._why: dict[int, bool] = {}  # whether that is an error, which launchers' tables follow
        hosts = status.temporary(run_dir) / "hosts"
        seclusion.write_hosts(hosts, network.addresses)
        for node in network.local:
            self._start(asked, network, node, hosts)

    @staticmethod
    def log(run_dir: Path, node: int) -> Path:
        """Return the file with all output of the command on `node`."""
        return run_dir / "logs" / f"node{node}.log"

    def _start(self, asked: Asked, network: Network, node: int, hosts: Path) -> None:
        """Fork the node's process 1, which starts the command; see `_be_first_process`."""
        temporary = status.temporary(self._run_dir) / f"node{node}"
        temporary.mkdir()
        (pipe, output), (ending, ended) = os.pipe(), os.pipe()
        if not (forked := seclusion.fork()):
            try:
                setproctitle(f"harness: process 1 of node {node}")
                seclusion.seclude(node, hosts, temporary, self._run_dir)
                _be_first_process(asked, network, node, output, ended)
            except BaseException as error:
                os.write(output, f"{type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(CANNOT_START)
        os.close(output)
        os.close(ended)
        os.set_blocking(pipe, False)
        os.set_blocking(ending, False)
        self.running[node], self._endings[node] = forked, ending
        self._pipes[pipe], self._rest[node] = node, b""

    def lines(self, wait_s: float) -> Iterator[OutputLine]:
        """Yield the whole lines of output that have arrived, or arrive within `wait_s` seconds."""
        if not self._pipes:
            time.sleep(wait_s)
            return
        ready, _, _ = select.select(list(self._pipes), [], [], wait_s)
        for pipe in ready:
            node = self._pipes[pipe]
            try:
                came = os.read(pipe, READ_BYTES)
            except BlockingIOError:
                continue
            if not came:
                os.close(pipe)
                del self._pipes[pipe]
            self._logs[node].write(came)
            yield from self._split(node, came or b"\n")

    def rest(self) -> Iterator[OutputLine]:
        """Yield the remaining output after the command has ended, without waiting for more.

        The last line needs no line end. A surviving process may keep the pipe open.
        """
        while select.select(list(self._pipes), [], [], 0.0)[0]:
            yield from self.lines(0.0)
        for node in self._rest:
            yield from self._split(node, b"\n")

    def _split(self, node: int, came: bytes) -> Iterator[OutputLine]:
        now = time.monotonic()
        *whole, rest = ENDS.split(self._rest[node] + came)
        if len(rest) > MOST_LINE_BYTES:
            whole, rest = [*whole, rest], b""
        self._rest[node] = rest
        for each in filter(None, whole):
            text = each.decode(errors="replace")
            is_why = WHY.search(text) is not None
            if TELLS.search(text) and (is_why or not self._why.get(node)):
                self._last[node], self._why[node] = text.strip(), is_why
            yield OutputLine(node, text, now)

    def reap(self) -> None:
        """Note which commands ended, and collect every child that did."""
        for node, ending in list(self._endings.items()):
            with suppress(BlockingIOError):
                if code := os.read(ending, 1):
                    self._end(node, code[0])
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG | OWN_CHILDREN))[0]:
                for node, forked in list(self.running.items()):
                    if forked == ended[0]:  # before it told of the command
                        self._end(node, shell_status(ended[1]))

    def _end(self, node: int, code: int) -> None:
        os.close(self._endings.pop(node))
        self.endings[node] = code
        del self.running[node]

    def failure(self) -> str:
        """Say how the first failed command ended. Empty while none has failed."""
        for node, code in self.endings.items():
            if code:
                how = f"exited with status {code}"
                if code > 128 and code - 128 in {each.value for each in signal.Signals}:
                    how = f"was killed by {signal.Signals(code - 128).name}"
                last = self._last.get(node, "it said nothing")
                return f"node {node}: the command {how}: {last[:200]}"
        return ""
