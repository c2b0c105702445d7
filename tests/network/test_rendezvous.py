"""Machines that meet exchange values in step, and each hears of the end of another."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyroute2 import IPRoute

from harness.network import rendezvous
from harness.network.links import NetworkError
from harness.network.rendezvous import Ended, Rendezvous
from tests.network import machines
from tests.network.inside import inside

HERE = "127.0.0.1"
Part = Callable[[Rendezvous], Any]


def free_port() -> int:
    with socket.create_server((HERE, 0)) as taken:
        return taken.getsockname()[1]


def meet(*parts: Part, machines: int | None = None) -> list[Any]:
    """What each machine's part returned or raised, after all have met on this one."""
    port, found = free_port(), [None] * len(parts)

    def run(number: int, part: Part) -> None:
        meeting, failure = Rendezvous(number, machines or len(parts)), None
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
                assert isinstance(ended, Ended) and ended.state == "failed", ended
                assert str(ended) == f"machine {guilty}: on purpose"


def test_a_machine_that_closes_without_a_word_has_disappeared() -> None:
    def dies(meeting: Rendezvous) -> None:
        meeting._peers.pop().connection.close()

    def waits(meeting: Rendezvous) -> None:
        meeting.gather("number", 1)

    ended = meet(waits, dies)[0]
    assert isinstance(ended, Ended) and str(ended) == "machine 1 disappeared", ended


def test_machines_that_count_differently_are_told() -> None:
    port = free_port()
    other = Rendezvous(1, 3)
    thread = threading.Thread(target=lambda: pytest.raises(Ended, other.join, HERE, port, 10.0))
    thread.start()
    with pytest.raises(NetworkError, match="network.machines is 3 on machine 1, 2 here"):
        Rendezvous(0, 2).join(HERE, port, 10.0)
    thread.join(20)


def test_a_stranger_at_the_port_is_ignored() -> None:
    port = free_port()
    hub, other = Rendezvous(0, 2), Rendezvous(1, 2)
    joining = threading.Thread(target=hub.join, args=(HERE, port, 20.0))
    joining.start()
    for words in (b"GET / HTTP/1.0\r\n\r\n", b"[1]\n", b"\xff\xfe\n", b""):
        stranger = knock(port)
        stranger.sendall(words)
        stranger.close()
    other.join(HERE, port, 20.0)
    joining.join(20)
    both = threading.Thread(target=hub.gather, args=("number", 0))
    both.start()
    assert other.gather("number", 1) == [0, 1]
    both.join(20)
    other.leave(None)
    hub.leave(None)


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
        hub, other = Rendezvous(0, 2), Rendezvous(1, 2)
        with here.entered():
            listening = threading.Thread(target=hub.join, args=(machines.address(0), 29400, 20.0))
            listening.start()
        with there.entered():
            other.join(machines.address(0), 29400, 20.0)
            listening.join()
            with IPRoute() as ip:
                ip.link("set", index=ip.link_lookup(ifname=machines.INTERFACE)[0], state="down")
        with pytest.raises(Ended, match="machine 1 disappeared"):
            hub.gather("number", 0)
