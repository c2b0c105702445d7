"""Connections between the machines of one run: TCP from each machine to machine 0, lines of JSON.

A machine proves that it has the run's token without sending it, and machine 0 does the same.
Strangers are dropped unnoticed by other machines. Later messages are neither secret nor signed.

The machines exchange values in step. Each learns within seconds if another one has ended or is
gone. A machine announces its end. The kernel closes the connections of a killed process. TCP's
keepalive detects a machine that lost power or its cable.
"""

import hmac
import json
import secrets
import select
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from harness.emulation.links import NetworkError

PATIENCE_S = 120.0  # to wait for the others at the same call
_LOOK_S = 0.2  # between tries to connect
_READ_BYTES = 1 << 20
_MOST_HELLO_BYTES = 1 << 12  # from a peer that has not proved the token
_MOST_BYTES = 1 << 30  # of one message: all rows of a machine
_HELLO_S = 10.0  # for a stranger to prove the token
_STRANGERS = 64  # at once; a further one replaces the oldest
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # s, s, times
_UNHEARD_MS = 20_000  # until unacknowledged data counts as lost


class RunEnded(Exception):
    """The run has ended on another machine with `state`: failed or interrupted."""

    def __init__(self, text: str, state: str) -> None:
        super().__init__(text)
        self.state = state


class Stopped(RunEnded):
    """Error: the user has stopped the run on this machine."""


class Peer:
    """A connection to another machine, which sends and receives lines of JSON."""

    def __init__(self, connection: socket.socket, machine: int | None = None) -> None:
        self.connection, self.machine = connection, machine
        self.messages: list[dict[str, Any]] = []
        self.alive = True
        self.most_bytes = _MOST_HELLO_BYTES
        self.until = time.monotonic() + _HELLO_S
        self.nonce = secrets.token_hex()
        self._unread = b""
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNHEARD_MS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raise OSError if the other end is gone."""
        self.connection.settimeout(_UNHEARD_MS / 1000)
        self.connection.sendall(json.dumps(message).encode() + b"\n")
        self.connection.setblocking(False)

    def read(self) -> bool:
        """Add what has arrived to `messages`; return False if the other end is gone or invalid."""
        self.alive = self.alive and self._take_in()
        return self.alive

    def _take_in(self) -> bool:
        try:
            while data := self.connection.recv(_READ_BYTES):
                *lines, self._unread = (self._unread + data).split(b"\n")
                if max(map(len, [*lines, self._unread])) > self.most_bytes:
                    return False
                self.messages += [dict(json.loads(line)) for line in lines]
        except BlockingIOError:
            return True
        except (OSError, ValueError, TypeError, RecursionError):  # gone, or not one of our machines
            return False
        return False


class Rendezvous:
    """One machine's connections to the others; all make the same calls in the same order."""

    def __init__(self, machine: int, machines: int, token: str, stop: int | None = None) -> None:
        """Set up machine `machine` of `machines`; waiting raises Stopped if `stop` is readable."""
        self.machine, self.machines, self._stop = machine, machines, stop
        self._token = token.encode()
        self._peers: list[Peer] = []  # on machine 0 all others, in order; elsewhere machine 0

    def join(self, master: str, port: int, patience_s: float) -> None:
        """Connect all machines. Raise NetworkError after `patience_s`, RunEnded if the run ends."""
        deadline = time.monotonic() + patience_s
        if self.machine == 0:
            self._admit(master, port, deadline)
        else:
            self._enter(master, port, deadline)

    def gather(self, name: str, value: Any, patience_s: float = PATIENCE_S) -> list[Any]:
        """Return every machine's value, in machine order; raise RunEnded if a machine has ended."""
        deadline = time.monotonic() + patience_s
        if self.machine:
            self._send(self._peers[0], {"name": name, "value": value})
            return self._receive(self._peers[0], name, deadline)
        values = [value] + [self._receive(peer, name, deadline) for peer in self._peers]
        for peer in self._peers:
            self._send(peer, {"name": name, "value": values})
        return values

    def collect(self, name: str, value: Any) -> list[Any]:
        """Return all values on machine 0, as `gather` does, and [`value`] on the others."""
        deadline = time.monotonic() + PATIENCE_S
        if self.machine:
            self._send(self._peers[0], {"name": name, "value": value})
            return [value]
        return [value] + [self._receive(peer, name, deadline) for peer in self._peers]

    def check(self) -> None:
        """Raise RunEnded if the run has ended on another machine."""
        for peer in self._peers:
            self._look(peer)

    def leave(self, error: BaseException | None) -> None:
        """Tell the others why this machine ends (None: it is done), and close all connections."""
        state = getattr(error, "state", "failed")
        text = str(error) or type(error).__name__
        if type(error) is not RunEnded:  # machine 0 reports a RunEnded to the others
            text = f"machine {self.machine}: {text}"
        for peer in self._peers:
            try:
                peer.send({"ended": state, "text": text} if error else {"name": "the end"})
            except OSError:
                pass  # that machine is gone as well
            peer.connection.close()
        self._peers = []

    def _admit(self, master: str, port: int, deadline: float) -> None:
        try:
            listener = socket.create_server((master, port))
        except OSError as error:
            raise NetworkError(
                f"meet the other machines at {master}:{port}: {error.strerror}; network.master "
                "must be an address of machine 0, and network.port free there"
            ) from error
        peers: dict[int, Peer] = {}
        newcomers: list[Peer] = []
        with listener:
            while len(peers) < self.machines - 1:
                everyone = [listener, *(peer.connection for peer in (*newcomers, *peers.values()))]
                missing = sorted(set(range(1, self.machines)) - set(peers))
                self._wait(
                    everyone, deadline, f"machines {missing} did not come to {master}:{port}"
                )
                newcomers = self._let_in(listener, newcomers)
                newcomers = [peer for peer in newcomers if not self._greeted(peer, peers)]
                peers = {number: peer for number, peer in peers.items() if peer.read()}
        for peer in newcomers:
            peer.connection.close()
        self._peers = [peers[number] for number in sorted(peers)]
        for peer in self._peers:
            self._send(peer, {"name": "welcome", "value": None})

    def _let_in(self, listener: socket.socket, unknown: list[Peer]) -> list[Peer]:
        """Accept one pending connection of `listener` without waiting, and send it a nonce.

        Return `unknown`, the peers that have not proven the token, with the new peer at the end.
        Close the oldest if there would be more than `_STRANGERS`. Return `unknown` unchanged if
        there is no connection, or if it has closed again.
        """
        readable, _, _ = select.select([listener], [], [], 0)
        if not readable:
            return unknown
        try:
            came = Peer(listener.accept()[0])
            came.send({"nonce": came.nonce})
        except OSError:  # it has gone again
            return unknown
        for oldest in unknown[: -_STRANGERS + 1]:
            self._drop(oldest, "others came")
        return [*unknown[-_STRANGERS + 1 :], came]

    def _greeted(self, peer: Peer, known: dict[int, Peer]) -> bool:
        """Handle the greeting of a new connection. Return True once it is admitted or dropped.

        An admitted peer is added to `known`, by machine. A peer without the token is told so and
        dropped. Tell all peers and raise NetworkError if its machine number or count is wrong.
        """
        alive = peer.read()
        if not peer.messages:
            if not alive or time.monotonic() > peer.until:
                self._drop(peer, "it said nothing that a machine says")
                return True
            return False
        hello = peer.messages.pop(0)
        machine, machines, nonce = (hello.get(key) for key in ("machine", "machines", "nonce"))
        if not self._shown(hello, "hello", machine, machines, peer.nonce, nonce):
            with suppress(OSError):
                peer.send({"ended": "failed", "text": "you do not have my token"})
            self._drop(peer, "it does not have this machine's token")
            return True
        if machines != self.machines:
            wrong = f"network.machines is {machines} on machine {machine}, {self.machines} here"
        elif not isinstance(machine, int) or machine in known or not 0 < machine < self.machines:
            wrong = f"network.machine={machine} is there twice or not in [0, {self.machines})"
        else:
            peer.machine, peer.most_bytes = machine, _MOST_BYTES
            peer.send(self._proof("token", nonce))
            known[machine] = peer
            return True
        for other in (peer, *known.values()):
            other.send({"ended": "failed", "text": wrong})
        raise NetworkError(wrong)

    def _drop(self, peer: Peer, why: str) -> None:
        """Close a stranger's connection, and report it in this machine's log only."""
        with suppress(OSError):  # it has gone
            print(f"{peer.connection.getpeername()[0]} was not let in: {why}", file=sys.stderr)
        peer.connection.close()

    def _proof(self, *said: Any) -> dict[str, str]:
        """Return the field that proves, for the values `said`, that the sender has the token."""
        return {"proof": hmac.digest(self._token, json.dumps(said).encode(), "sha256").hex()}

    def _shown(self, message: dict[str, Any], *said: Any) -> bool:
        proof = message.get("proof")
        if not isinstance(proof, str) or not proof.isascii():
            return False
        return hmac.compare_digest(proof, self._proof(*said)["proof"])

    def _enter(self, master: str, port: int, deadline: float) -> None:
        """Connect until machine 0 accepts; it may still be ending the previous run."""
        what = f"machine 0 did not come to {master}:{port}"
        while True:
            try:
                peer = Peer(socket.create_connection((master, port), timeout=_LOOK_S), 0)
                self._show(peer, deadline, what)
            except OSError:
                self._wait([], min(deadline, time.monotonic() + _LOOK_S), what, deadline)
                continue
            self._peers = [peer]
            self._receive(peer, "welcome", deadline)
            return

    def _show(self, peer: Peer, deadline: float, what: str) -> None:
        """Prove to machine 0 that we have the token, and check its proof; OSError if it is gone."""
        theirs = self._heard(peer, deadline, what).get("nonce")
        me = (self.machine, self.machines)
        hello = {"machine": me[0], "machines": me[1], "nonce": peer.nonce}
        peer.send(hello | self._proof("hello", *me, theirs, peer.nonce))
        answer = self._heard(peer, deadline, what)
        if not self._shown(answer, "token", peer.nonce):
            raise NetworkError(f"{what}: who listens there does not have this machine's token")
        peer.most_bytes = _MOST_BYTES

    def _heard(self, peer: Peer, deadline: float, what: str) -> dict[str, Any]:
        """Wait for the next message of machine 0 and return it, before it has accepted us.

        `what` describes the wait for errors. Raise ConnectionError if the connection closes, and
        RunEnded if machine 0 has ended the run.
        """
        while peer.read() and not peer.messages:
            self._wait([peer.connection], deadline, what)
        if not peer.messages:
            peer.connection.close()
            raise ConnectionError(what)
        if "ended" in (message := peer.messages.pop(0)):
            raise RunEnded(f"machine 0: {message.get('text')}", "failed")
        return message

    def _wait(self, sockets: list, until: float, what: str, deadline: float | None = None) -> None:
        """Return when a socket is readable; raise NetworkError `what` after `deadline`."""
        stop = [] if self._stop is None else [self._stop]
        readable, _, _ = select.select([*sockets, *stop], [], [], max(0, until - time.monotonic()))
        if self._stop in readable:
            raise Stopped("stopped by the user", "interrupted")
        if not readable and time.monotonic() >= (until if deadline is None else deadline):
            raise NetworkError(f"{what} in time")

    def _look(self, peer: Peer) -> None:
        alive = peer.read()
        for message in peer.messages:
            if "ended" in message:
                raise RunEnded(message["text"], message["ended"])
        if not alive and not peer.messages:
            raise RunEnded(f"machine {peer.machine} disappeared", "failed")

    def _receive(self, peer: Peer, name: str, deadline: float) -> Any:
        self.check()
        while not peer.messages:
            everyone = [other.connection for other in self._peers if other.alive]
            self._wait(everyone, deadline, f"machine {peer.machine} did not come to {name}")
            self.check()
        message = peer.messages.pop(0)
        if message["name"] != name:
            raise NetworkError(f"machine {peer.machine} is at {message['name']}, not at {name}")
        return message["value"]

    def _send(self, peer: Peer, message: dict[str, Any]) -> None:
        try:
            peer.send(message)
        except OSError:
            self._look(peer)  # raises its reason if it sent one
            raise RunEnded(f"machine {peer.machine} disappeared", "failed") from None
