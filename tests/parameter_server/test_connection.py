"""A connection of two processes over TCP: tensors arrive whole, and its loss shows at once."""

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

LONG_S = 100.0  # of silence; no test waits for it


def met() -> tuple[TcpConnection, TcpConnection]:
    """Return both ends of a connection."""
    listening = Listening("127.0.0.1", 0, LONG_S)
    there = join("127.0.0.1", listening.port, LONG_S)
    return listening.accept(), there


def test_tensors_arrive_in_order_and_their_bytes_are_counted():
    here, there = met()
    turned = torch.arange(4.0).view(2, 2).t()
    sent = [torch.randn(5), torch.arange(3, dtype=torch.int64), torch.empty(0), turned]
    there.send(Weights(7), *sent)
    assert here.receive() == Weights(7)
    for tensor in sent:
        assert torch.equal(here.take(torch.empty(tensor.shape, dtype=tensor.dtype)), tensor)
    assert there.sent_bytes == here.received_bytes == 64 + 20 + 24 + 16


@pytest.mark.parametrize("entries", [1, 3])
def test_a_tensor_of_another_length_is_no_tensor_of_ours(entries):
    here, there = met()
    there.send(Pull(), torch.ones(2))
    here.receive()
    with pytest.raises(ProtocolError, match=f"expected {4 * entries} bytes, .* sends 8"):
        here.take(torch.empty(entries))


def test_the_other_end_learns_of_a_closed_connection():
    here, there = met()
    here.close()
    with pytest.raises(ConnectionLost, match="Connection closed by peer"):
        there.receive()


def test_a_silent_end_is_lost_after_the_timeout():
    listening = Listening("127.0.0.1", 0, 0.1)
    silent = join("127.0.0.1", listening.port, LONG_S)
    with pytest.raises(ConnectionLost, match="Timed out waiting 0.1 s for the other end"):
        listening.accept().receive()
    silent.close()


def test_the_death_of_a_process_within_a_tensor_shows_at_once():
    """A slow link could take as long as the timeout for the rest of the tensor."""
    listening = Listening("127.0.0.1", 0, LONG_S)
    content = torch.zeros(1 << 24)  # here: threads of torch's do not outlive a fork

    def speaks() -> None:
        join("127.0.0.1", listening.port, LONG_S).send(Pull(), content)

    speaker = get_context("fork").Process(target=speaks)
    speaker.start()
    connection = listening.accept()
    assert connection.receive() == Pull()
    speaker.kill()  # most of the rest has not been sent, as no call has taken it
    with pytest.raises(ConnectionLost, match="Connection (closed|reset) by peer"):
        connection.take(torch.empty_like(content))
    speaker.join()
