"""A connection of two processes over TCP: whole tensors, and at once told when it is lost."""

from multiprocessing import get_context

import pytest
import torch

from harness.engine.parameter_server.connection import (
    ConnectionLost,
    Listening,
    TcpConnection,
    join,
)
from harness.engine.parameter_server.messages import ProtocolError, Pull, Weights
from tests.launching import until

LONG_S = 100.0  # of silence; no test waits for it


def met() -> tuple[TcpConnection, TcpConnection]:
    """Both ends of a connection, here."""
    listening = Listening("127.0.0.1", 0, LONG_S)
    there = join("127.0.0.1", listening.port, LONG_S, LONG_S)
    return let_in(listening), there


def let_in(listening: Listening) -> TcpConnection:
    connections: list[TcpConnection] = []
    until(lambda: connections.extend(listening.joined()) or connections, "somebody")
    [connection] = connections
    return connection


def test_tensors_arrive_in_order_and_their_bytes_are_counted():
    here, there = met()
    turned = torch.arange(4.0).view(2, 2).t()
    sent = [torch.randn(5), torch.arange(3, dtype=torch.int64), torch.empty(0), turned]
    there.send(Weights(7), *sent)
    assert here.receive() == Weights(7)
    for tensor in sent:
        assert torch.equal(here.take(torch.empty(tensor.shape, dtype=tensor.dtype)), tensor)
    assert there.sent_bytes == here.received_bytes == 64 + 20 + 24 + 16
    assert there.confirmed_bytes == 0
    here.send(Pull())
    assert there.receive() == Pull() and there.confirmed_bytes == there.sent_bytes


@pytest.mark.parametrize("entries", [1, 3])
def test_a_tensor_of_another_length_is_no_tensor_of_ours(entries):
    here, there = met()
    there.send(Pull(), torch.ones(2))
    here.receive()
    with pytest.raises(ProtocolError, match=f"expected {4 * entries} bytes, .* sends 8"):
        here.take(torch.empty(entries))


def test_an_end_that_is_closed_is_known_at_both():
    here, there = met()
    here.close()
    with pytest.raises(ConnectionLost, match="Connection closed by peer"):
        there.receive()
    with pytest.raises(ConnectionLost, match="the session was closed"):
        here.receive()


def test_who_is_killed_within_a_tensor_is_missed_at_once():
    """The rest would be waited for as long as a slow link may take."""
    listening = Listening("127.0.0.1", 0, LONG_S)
    content = torch.zeros(1 << 24)  # here: threads of torch's do not outlive a fork

    def speaks() -> None:
        join("127.0.0.1", listening.port, LONG_S, LONG_S).send(Pull(), content)

    speaker = get_context("fork").Process(target=speaks)
    speaker.start()
    connection = let_in(listening)
    assert connection.receive() == Pull()
    speaker.kill()  # most of the rest has not been sent: nobody took it
    with pytest.raises(ConnectionLost, match="Connection (closed|reset) by peer"):
        connection.take(torch.empty_like(content))
    speaker.join()
