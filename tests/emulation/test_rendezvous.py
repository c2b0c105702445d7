"""Machines that meet exchange values in step, and each hears of the end of another."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroute2 import IPRoute
from torch.distributed import TCPStore

from harness.emulation import rendezvous, token
from harness.emulation.links import NetworkError
from harness.emulation.rendezvous import Rendezvous, RunEnded
from harness.runner import torch_network
from tests.emulation import machines
from tests.emulation.inside import inside
from tests.launching import until

HERE = "127.0.0.1"
TOKEN = "of all machines of a run"
Part = Callable[[Rendezvous], Any]


def free_port() -> int:
    with socket.create_server((HERE, 0)) as taken:
        return taken.getsockname()[1]


def meet(*parts: Part, machines: int | None = None) -> list[Any]:
    """What each machine's part returned or raised, after all have met on this one."""
    port, found = free_port(), [None] * len(parts)

    def run(number: int, part: Part) -> None:
        meeting, failure = Rendezvous(number, machines or len(parts), TOKEN), None
        try:
            meeting.join(HERE, port, 10.0)
            found[number] = part(meeting)
        except Exception as error:
            found[number] = failure = error
        finally:
            meeting.leave(failure)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_every_machine_gets_all_values_in_their_order_and_machine_0_collects() -> None:
    def part(meeting: Rendezvous) -> tuple[list, list]:
        large = "x" * (1 << 20) + str(meeting.machine)
        return meeting.gather("number", meeting.machine), meeting.collect("text", large)

    found = meet(part, part, part)
    assert [numbers for numbers, _ in found] == [[0, 1, 2]] * 3
    assert [text[-1] for text in found[0][1]] == ["0", "1", "2"]
    assert [len(texts) for _, texts in found] == [3, 1, 1]


def test_why_one_machine_ends_is_told_to_all() -> None:
    def fails(meeting: Rendezvous) -> None:
        raise ArithmeticError("on purpose")

    def waits(meeting: Rendezvous) -> None:
        meeting.gather("number", 1)

    for parts in ((fails, waits, waits), (waits, fails, waits)):
        guilty = parts.index(fails)
        for number, ended in enumerate(meet(*parts)):
            if number != guilty:
                assert isinstance(ended, RunEnded) and ended.state == "failed", ended
                assert str(ended) == f"machine {guilty}: on purpose"


def test_a_machine_that_closes_without_a_word_has_disappeared() -> None:
    def dies(meeting: Rendezvous) -> None:
        meeting._peers.pop().connection.close()

    def waits(meeting: Rendezvous) -> None:
        meeting.gather("number", 1)

    ended = meet(waits, dies)[0]
    assert isinstance(ended, RunEnded) and str(ended) == "machine 1 disappeared", ended


def test_machines_that_count_differently_are_told() -> None:
    port = free_port()
    other = Rendezvous(1, 3, TOKEN)
    thread = threading.Thread(target=lambda: pytest.raises(RunEnded, other.join, HERE, port, 10.0))
    thread.start()
    with pytest.raises(NetworkError, match="network.machines is 3 on machine 1, 2 here"):
        Rendezvous(0, 2, TOKEN).join(HERE, port, 10.0)
    thread.join(20)


STRANGERS = {"http": b"GET / HTTP/1.0\r\n\r\n", "list": b"[1]\n", "no text": b"\xff\xfe\n",
             "nothing": b"", "empty": b"{}\n", "machine 9": b'{"machine": 9}\n',
             "machine 1": b'{"machine": 1, "machines": 2, "nonce": "", "proof": "\\u00e9"}\n',
             "types": b'{"machine": {}, "machines": [], "nonce": 1, "proof": 2}\n',
             "deep": b"[" * 4000 + b"\n", "endless": b"x" * (1 << 20),
             "end": b'{"ended": "failed", "text": "evil"}\n'}  # fmt: skip


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with socket.create_server((HERE, 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        return listener.accept()[0], there


def messages() -> st.SearchStrategy[bytes]:
    """What is JSON, of the words of a machine."""
    words = st.sampled_from(["machine", "machines", "nonce", "proof", "ended", "text", "name"])
    value = st.none() | st.integers(-1, 3) | st.text(max_size=9) | st.lists(st.integers())
    return st.dictionaries(words, value).map(lambda said: json.dumps(said).encode())


def joins(port: int) -> None:
    """Both machines of a run meet at `port`, whoever came before."""
    other = Rendezvous(1, 2, TOKEN)
    other.join(HERE, port, 20.0)
    values = []
    gathering = threading.Thread(target=lambda: values.append(other.gather("number", 1)))
    gathering.start()
    gathering.join(20)
    assert values == [[0, 1]]
    other.leave(None)


@pytest.fixture
def port() -> Iterator[int]:
    """Where machine 0 of two waits, and then says its number; it must end well."""
    place, failed = free_port(), []

    def lead() -> None:
        hub = Rendezvous(0, 2, TOKEN)
        try:
            hub.join(HERE, place, 30.0)
            hub.gather("number", 0)
        except Exception as error:
            failed.append(error)
        hub.leave(None)

    leading = threading.Thread(target=lead)
    leading.start()
    yield place
    leading.join(40)
    assert not failed and not leading.is_alive()


def test_strangers_are_dropped_and_the_machines_meet(port: int) -> None:
    for words in STRANGERS.values():
        with knock(port) as stranger, suppress(OSError):
            stranger.sendall(words)
    joins(port)


def test_strangers_that_say_nothing_and_stay_keep_nobody_out(port: int) -> None:
    with ExitStack() as held:
        for _ in range(3 * rendezvous._STRANGERS):
            held.enter_context(knock(port))
        joins(port)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(words=st.lists(st.binary(max_size=300) | messages(), max_size=5))
def test_whatever_a_stranger_says_he_is_not_let_in(words: list[bytes]) -> None:
    hub, known = Rendezvous(0, 2, TOKEN), dict[int, rendezvous.Peer]()
    here, there = connected()
    peer = rendezvous.Peer(here)
    with there:
        there.sendall(b"\n".join([*words, b""]))
    dealt_with = [hub._greeted(peer, known) for _ in range(len(words) + 2)]
    assert dealt_with[-1] and not known


def test_who_has_another_token_is_told_and_takes_nobody_s_place(port: int) -> None:
    until(lambda: knock(port).close() is None, "machine 0 listens")
    with pytest.raises(RunEnded, match="machine 0: you do not have my token"):
        Rendezvous(1, 2, "of another run's machines").join(HERE, port, 10.0)
    joins(port)


def test_who_listens_in_place_of_machine_0_is_found_out() -> None:
    with socket.create_server((HERE, 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as victim:
                victim.sendall(b'{"nonce": "00"}\n')
                victim.recv(1 << 12)
                victim.sendall(b'{"proof": "00"}\n{"name": "welcome", "value": null}\n')

        impostor = threading.Thread(target=answer)
        impostor.start()
        with pytest.raises(NetworkError, match="does not have this machine's token"):
            Rendezvous(1, 2, TOKEN).join(HERE, listener.getsockname()[1], 10.0)
        impostor.join(10)


def test_the_token_is_never_said() -> None:
    said: list[bytes] = []
    hub, known = Rendezvous(0, 2, TOKEN), dict[int, rendezvous.Peer]()
    ours, theirs = connected()
    peer = rendezvous.Peer(ours)
    proof = hub._proof("hello", 1, 2, peer.nonce, "n")
    theirs.sendall(json.dumps({"machine": 1, "machines": 2, "nonce": "n"} | proof).encode() + b"\n")
    assert hub._greeted(peer, known) and list(known) == [1]
    said.append(theirs.recv(1 << 12))
    assert b"proof" in said[0] and TOKEN.encode() not in said[0] and TOKEN not in str(proof)


def test_the_store_of_a_run_listens_on_its_address_alone() -> None:
    made = torch_network.listening(HERE, 0, 1)
    with socket.create_connection((HERE, made.port), timeout=5):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", made.port), timeout=5)
    made.set("key", "value")
    assert TCPStore(HERE, made.port, is_master=False).get("key") == b"value"


def test_a_token_comes_from_a_file_that_is_ours_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(token.VARIABLE, raising=False)
    with pytest.raises(ValueError, match="host needs a token of 16 characters or more"):
        token.of_run(None)
    monkeypatch.setenv(token.VARIABLE, "x" * 20)
    assert token.of_run(None) == "x" * 20
    file = tmp_path / "token"
    file.write_text("y" * 20 + "\n")
    file.chmod(0o644)
    with pytest.raises(ValueError, match=f"others can read {file}; `chmod 600 {file}`"):
        token.of_run(str(file))
    file.chmod(0o600)
    assert token.of_run(str(file)) == "y" * 20
    with pytest.raises(ValueError, match="No such file"):
        token.of_run(str(tmp_path / "none"))


def knock(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection((HERE, port))
        except ConnectionRefusedError:
            continue


@inside
def test_a_machine_whose_cable_is_cut_has_disappeared() -> None:
    rendezvous._KEEPALIVE.update(TCP_KEEPIDLE=1, TCP_KEEPINTVL=1, TCP_KEEPCNT=2)
    rendezvous._UNHEARD_MS = 2000
    with machines.pair() as (here, there):
        hub, other = Rendezvous(0, 2, TOKEN), Rendezvous(1, 2, TOKEN)
        with here.entered():
            listening = threading.Thread(target=hub.join, args=(machines.address(0), 29400, 20.0))
            listening.start()
        with there.entered():
            other.join(machines.address(0), 29400, 20.0)
            listening.join()
            with IPRoute() as ip:
                ip.link("set", index=ip.link_lookup(ifname=machines.INTERFACE)[0], state="down")
        with pytest.raises(RunEnded, match="machine 1 disappeared"):
            hub.gather("number", 0)
