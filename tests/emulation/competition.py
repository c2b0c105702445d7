"""A small star with competing flows on it, and another flow to measure beside them."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.emulation.contention import Contention
from harness.emulation.iperf import CompetingPath, Sockets
from harness.emulation.star import Star
from harness.records.run_directory import Events, read_events
from tests.emulation.inside import Flat

RATE_MBIT = 50.0


class Competition:
    """A star of 50 Mbit/s links and what competes on them: node 0 sends to `receivers`."""

    def __init__(
        self, network: Any, folder: Path, receivers: Sequence[int], control: str | None
    ) -> None:
        self.network, self.folder, self._run_dir = network, folder / "contention", folder
        sender = network.nodes[0].namespace
        pairs = [
            CompetingPath(f"to{k}", sender, network.nodes[k].namespace, network.addresses[k])
            for k in receivers
        ]
        self._pairs = len(pairs)
        began = time.monotonic()
        self.contention = Contention(
            self.folder, pairs, Events(folder), lambda: time.monotonic() - began, control
        )

    def told(self, event: str) -> list[dict]:
        return [line for line in read_events(self._run_dir) if line["event"] == event]

    def flowing(self) -> int:
        return len(self.told("flow_started")) - len(self.told("flow_stopped"))

    def reach(self, flows: int, planned_s: float = 0.0) -> None:
        """Want `flows`, and wait until all pairs together have them."""
        self.contention.want(flows, planned_s)
        self.wait_for(lambda: self.flowing() == flows * self._pairs)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.contention.error is None, self.contention.error
            assert time.monotonic() < deadline, f"waited {seconds} s, {self.flowing()} flows"
            time.sleep(0.002)


@contextmanager
def competing(receivers: Sequence[int] = (1,), control: str | None = None) -> Iterator[Competition]:
    with TemporaryDirectory() as folder, Star().up(3, Flat(RATE_MBIT), 1.0) as network:
        yield Competition(network, Path(folder), receivers, control)
        assert processes("iperf3") == [], processes("iperf3")


def processes(name: str) -> list[int]:
    """Ids of all `name` that there are in this pid namespace, ended and not collected ones too."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/comm")
        if path.read_text().strip() == name
    ]


def role(pid: int) -> str:
    return "server" if b"-s" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") else "client"


@contextmanager
def sending(network: Any) -> Iterator[None]:
    """A TCP connection that sends from node 2 to node 1 without a pause."""
    with network.entered(1):
        listener = socket.create_server((network.addresses[1], 0))
    with network.entered(2):
        sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    done = threading.Event()

    def send() -> None:
        try:
            while not done.is_set():
                sender.sendall(bytes(1 << 16))
        except OSError:
            assert done.is_set()

    def receive() -> None:
        while receiver.recv_into(bytearray(1 << 18)):
            pass

    threads = [threading.Thread(target=run, daemon=True) for run in (send, receive)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        sender.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for end in (sender, receiver, listener):
            end.close()


def rate_mbit(network: Any, node: int, seconds: float) -> float:
    """Payload rate of all that `node` sends, from what the kernel tells of its connections."""
    sockets, began = Sockets(network.nodes[node].namespace), time.monotonic()
    before = sum(connection.sent_bytes for connection in sockets.connections())
    time.sleep(seconds)
    sent = sum(connection.sent_bytes for connection in sockets.connections()) - before
    sockets.close()
    return sent / 125_000 / (time.monotonic() - began)
