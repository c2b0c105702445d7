"""Any bytes that reach a server end that session in one named way, its weights as they were.

Sessions are drawn from the messages of the protocol, whole and damaged, and from random bytes.
"""

import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.engine.parameter_server.connection import ConnectionLost
from harness.engine.parameter_server.messages import (
    KINDS,
    NUMBERS,
    Answer,
    Hello,
    ProtocolError,
    Push,
)
from harness.engine.parameter_server.session import Session
from tests.parameter_server.scenes import Bench, pushed

STEPS = 2
NUMBER = (
    st.integers(-3, 10).map(float)
    | st.floats(width=64)
    | st.sampled_from([float("nan"), float("inf"), 2.0**63, -(2.0**63), 1e300])
)


def frame(content: bytes) -> bytes:
    return struct.pack("!Q", len(content)) + content


def message(numbers: list[float]) -> bytes:
    return frame(struct.pack(f"={NUMBERS}d", *numbers))


MESSAGES = st.lists(NUMBER, min_size=NUMBERS, max_size=NUMBERS).map(message)
OF_A_KIND = st.builds(
    lambda kind, rest: message([float(kind), *rest]),
    st.integers(0, len(KINDS) - 1),
    st.lists(NUMBER, min_size=NUMBERS - 1, max_size=NUMBERS - 1),
)
GREETING = st.builds(
    lambda rank, thread, entries: message([0.0, rank, thread, entries, 0, 0, 0, 0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 1.0, -1.0, 1e9]),
    st.just(2.0 * STEPS),
)
NOISE = st.binary(max_size=200) | st.binary(max_size=64).map(frame)
LENGTHS = st.integers(0, 2**64 - 1).map(lambda n: struct.pack("!Q", n))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A server that no trainer has joined yet."""
    bench = Bench(tmp_path_factory.mktemp("fuzzed"), 2, STEPS)
    bench.clock.call_ready()
    return bench


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    greeting=st.none() | GREETING,
    said=st.lists(MESSAGES | OF_A_KIND | NOISE | LENGTHS, max_size=6),
)
def test_any_bytes_end_a_session_and_change_no_weights(bench, greeting, said):
    before = bench.weights.vector.clone()
    with socket.create_connection(("127.0.0.1", bench.port)) as stranger, suppress(OSError):
        stranger.sendall(b"".join([greeting or b"", *said]))
    session = Session(connection=bench.server_loop.door.accept(), store=bench.store)
    bench.store.threads[:] = [session]
    bench.store.go_on(ends=True)  # a Finish returns at once
    with suppress(ConnectionLost, ProtocolError):
        session.greet()
        session.serve()
    assert torch.equal(bench.weights.vector, before) or bench.store.pushed.any()


def test_positions_whose_differences_overflow_are_refused(tmp_path: Path) -> None:
    """Each position is above the one before as far as int32 differences show."""
    index = torch.tensor([0, 2147483647, -2147483640, 1], dtype=torch.int32)
    assert (index.diff() > 0).all()
    fault = Bench(tmp_path, 2, STEPS).weights.fault(pushed(0, [torch.ones(4), index])[1])
    assert fault == "its positions are not distinct ones of the model"


@pytest.mark.parametrize("nbytes", [-1, 1 << 50])
def test_an_answer_of_no_possible_length_is_not_made_room_for(nbytes: int, tmp_path: Path) -> None:
    class Says:
        def send(self, *message: object) -> None: ...

        def receive(self) -> Answer:
            return Answer(nbytes)

    store = Bench(tmp_path, 2, STEPS).store
    session = Session(connection=Says(), store=store)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="an answer has 0 to 1073741824 bytes"):
        session.ask(0, 0)


def test_the_words_drawn_are_those_of_the_protocol() -> None:
    assert KINDS.index(Hello) == 0 and len(Push.__annotations__) < NUMBERS
