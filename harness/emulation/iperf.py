"""One competing flow: an iperf3 server and client, watched without waiting for them.

Another thread may collect every child that ends, as process 1 must. So a child is identified by a
pidfd, which stays valid whoever collects it, and not by an id that may be reused.
"""

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from pyroute2 import DiagSocket

from harness.emulation.links import NetworkError, attempt
from harness.emulation.namespaces import Namespace

_TCP_INFO = 1 << 1  # asks for the counters of each connection
_LISTEN, _NOT_OPEN = (
    1 << 10,
    1 << 6 | 1 << 7 | 1 << 12,
)  # by TCP state; not open: half of one, or none
_ALL = 0x1FFF
OLDEST = (3, 9)
_INSTALL = "apt-get install iperf3"
_COMMON_END_S = 1.0  # for a process to follow the one that it talks to
_CONTROL_BYTES = 4096  # iperf3 says far less on the connection that controls a test


class Connection(NamedTuple):
    """A TCP connection at the end that opened it."""

    local_port: int
    port: int  # of the other end
    sent_bytes: int  # payload handed to the link, each byte once


class Sockets:
    """Reader of the TCP sockets of a namespace by sock_diag, for one thread."""

    def __init__(self, namespace: Namespace) -> None:
        with namespace.entered():
            self._diag = DiagSocket()

    def listening(self) -> set[int]:
        """Return the ports with a listener."""
        return {found["idiag_sport"] for found in self._dump(_LISTEN)}

    def connections(self) -> list[Connection]:
        """Return all connections that are up, or have data left to deliver."""
        found = []
        for reply in self._dump(_ALL & ~_LISTEN & ~_NOT_OPEN):
            info = reply.get_attr("INET_DIAG_INFO")
            if info is not None:
                sent = info["tcpi_bytes_sent"] - info["tcpi_bytes_retrans"]
                found.append(Connection(reply["idiag_sport"], reply["idiag_dport"], sent))
        return found

    def close(self) -> None:
        self._diag.close()

    def _dump(self, states: int) -> Any:
        with attempt("read the TCP sockets of a node through sock_diag (kernel option INET_DIAG)"):
            return list(self._diag.get_sock_stats(socket.AF_INET, states, extensions=_TCP_INFO))


def check() -> None:
    """Raise ValueError if iperf3 is missing or too old."""
    wanted = f"competing flows need iperf3 >= {OLDEST[0]}.{OLDEST[1]}"
    if shutil.which("iperf3") is None:
        raise ValueError(f"{wanted}, and there is none on the PATH: {_INSTALL}")
    done = subprocess.run(["iperf3", "--version"], capture_output=True, text=True, timeout=10)
    found = re.match(r"iperf (\d+)\.(\d+)", done.stdout)
    if not found or tuple(map(int, found.groups())) < OLDEST:
        said = (done.stdout or done.stderr).split("\n")[0]
        raise ValueError(f"{wanted}, but iperf3 --version says {said!r}: {_INSTALL}")


class CompetingPath(NamedTuple):
    """One path on which flows compete."""

    name: str
    sender: Namespace
    receiver: Namespace
    address: str  # of the receiver


class FlowRecord(NamedTuple):
    """Record of one flow that has ended."""

    name: str  # also of its files
    pair: str
    started_s: float | None  # emulated, when its data was first seen; None: before step 0
    stopped_s: float | None  # emulated, when its last data had left
    sent_bytes: int  # TCP payload handed to the link, each byte once
    received_bytes: int | None  # that the server read; None when it had to be killed
    retransmits: int
    congestion_control: str  # in force, as iperf3 read it back
    mean_mbit: float  # real, from when its data was first seen until it was last seen to grow


class Child:
    """An iperf3 process in `namespace`. Its output goes to `stem`.json and `stem`.err."""

    def __init__(self, arguments: list[str], namespace: Namespace, stem: Path) -> None:
        self.said, self._stderr = Path(f"{stem}.json"), Path(f"{stem}.err")
        write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self.said), write, 0o644),
            (os.POSIX_SPAWN_OPEN, 2, str(self._stderr), write, 0o644),
        ]
        self._ending: int | str | None = None
        with namespace.entered():
            # a session of its own: Ctrl-C at the terminal is for the run, which ends it in order
            command = ["iperf3", *arguments]
            self.pid = os.posix_spawnp(
                command[0], command, os.environ, file_actions=files, setsid=True,
                setsigmask=[], setsigdef=[signal.SIGINT, signal.SIGPIPE],
            )  # fmt: skip
            self.descriptor = os.pidfd_open(self.pid)

    @property
    def ended(self) -> bool:
        if self._ending is None:
            try:
                status = os.waitid(os.P_PIDFD, self.descriptor, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                self._ending = "ended, with a status that somebody else collected"
            else:
                if status:
                    killed = status.si_code != os.CLD_EXITED
                    self._ending = -status.si_status if killed else status.si_status
        return self._ending is not None

    @property
    def killed(self) -> bool:
        """True if a signal ended the process, which iperf3 cannot have caused."""
        return self.ended and isinstance(self._ending, int) and self._ending < 0

    def ending(self) -> str:
        """Describe how the process ended and its last output, for an error."""
        how = self._ending
        if isinstance(how, int):
            name = f"was killed by {signal.Signals(-how).name}" if how < 0 else ""
            how = name or f"exited with status {how}"
        return f"{how}; it said: {self._last_words() or 'nothing'}"

    def result(self) -> dict:
        """Return the parsed JSON output, empty if the process was killed before writing it."""
        try:
            return json.loads(self.said.read_text())
        except json.JSONDecodeError:
            return {}

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, at most `seconds`."""
        waiting = select.poll()  # unlike select, for descriptors above 1023 too
        waiting.register(self.descriptor, select.POLLIN)
        waiting.poll(seconds * 1000)

    def signal(self, number: signal.Signals) -> None:
        """Send signal `number`, unless the process has ended."""
        if not self.ended:
            try:
                signal.pidfd_send_signal(self.descriptor, number)
            except ProcessLookupError:
                return  # it ended just now

    def close(self) -> None:
        """Release an ended process, and remove files that stayed empty."""
        os.close(self.descriptor)
        for path in (self.said, self._stderr):
            if path.stat().st_size == 0:
                path.unlink()

    def _last_words(self) -> str:
        if error := self.result().get("error"):
            return error
        said = self._stderr.read_text().strip() or self.said.read_text().strip()
        return said.split("\n")[-1].strip()


class IperfFlow:
    """One competing flow: an iperf3 server, then a client that sends until it is interrupted."""

    def __init__(
        self,
        name: str,
        pair: CompetingPath,
        port: int,
        congestion_control: str | None,
        folder: Path,
    ) -> None:
        """Start the server. connect() starts the client once the server listens."""
        self.name, self.pair, self.port = name, pair, port
        self.congestion_control = congestion_control
        self._folder = folder
        self.planned_s: float | None = None  # emulated, when the profile wanted it
        self.started_s: float | None = None  # emulated, None before step 0 and until it flows
        self.sent_bytes = 0
        self._local_port: int | None = None  # of the connection that carries the data
        self._first_s = self._last_s = 0.0  # when its data was first seen, and last seen to grow
        self._first_bytes = 0  # that had left when it was first seen
        self.client: Child | None = None
        listen = ["-s", "-1", "-J", "-p", str(port), "-B", pair.address]
        self.server = Child(listen, pair.receiver, folder / f"{name}.server")

    @property
    def children(self) -> list[Child]:
        return [child for child in (self.server, self.client) if child]

    def connect(self) -> None:
        send = ["-c", self.pair.address, "-p", str(self.port), "-t", "0", "-J"]
        if self.congestion_control:
            send += ["-C", self.congestion_control]
        self.client = Child(send, self.pair.sender, self._folder / self.name)

    def find(self, connections: list[Connection]) -> None:
        """Identify the flow's own connection in the sender's namespace, once it carries data."""
        for found in connections:
            if found.port == self.port and found.sent_bytes > _CONTROL_BYTES:
                self._local_port, self._first_bytes = found.local_port, found.sent_bytes
                self._first_s = self._last_s = time.monotonic()

    def look(self, connections: list[Connection]) -> bool:
        """Update the counter from the sender's connections. Return True while it sends."""
        for found in connections:
            if (found.local_port, found.port) == (self._local_port, self.port):
                if found.sent_bytes > self.sent_bytes:
                    self.sent_bytes, self._last_s = found.sent_bytes, time.monotonic()
                return True
        return False

    @property
    def flowing(self) -> bool:
        """True once find() has seen its data flow."""
        return self._local_port is not None

    def require_running(self) -> None:
        """Raise NetworkError if one of its processes ended by itself, naming the first one."""
        if not any(child.ended for child in self.children):
            return
        for child in self.children:
            # one ends by the other's end, and may be seen to end first
            child.wait(_COMMON_END_S)
        ended = sorted((c for c in self.children if c.ended), key=lambda child: not child.killed)
        role = "server" if ended[0] is self.server else "client"
        raise NetworkError(f"competing {self.name}: its iperf3 {role} {ended[0].ending()}")

    @property
    def ended(self) -> bool:
        return all(child.ended for child in self.children)

    def interrupt(self) -> None:
        """Begin to end it: orderly if it carries data, at once if it does not yet."""
        if self.client and self.flowing:
            self.client.signal(signal.SIGINT)
        else:
            self.kill()

    def kill(self) -> None:
        for child in self.children:
            child.signal(signal.SIGKILL)

    def record(self, stopped_s: float | None) -> FlowRecord:
        """Return the record of the ended flow. NetworkError unless interrupt() ended it."""
        assert self.client is not None, self.name
        said, heard = self.client.result(), self.server.result()
        mbit = (self.sent_bytes - self._first_bytes) / 125_000
        end = said.get("end", {})
        if "sum_sent" not in end or not said.get("error", "interrupt").startswith("interrupt"):
            raise NetworkError(f"competing {self.name}: its iperf3 client {self.client.ending()}")
        return FlowRecord(
            self.name,
            self.pair.name,
            self.started_s,
            stopped_s,
            self.sent_bytes,
            heard.get("end", {}).get("sum_received", {}).get("bytes"),
            end["sum_sent"]["retransmits"],
            end["sender_tcp_congestion"],
            mbit / (self._last_s - self._first_s) if mbit > 0 else 0.0,
        )

    def close(self) -> None:
        for child in self.children:
            child.close()
