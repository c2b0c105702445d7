"""Whatever a server is told: the session is over, and the server goes on, its weights as they were.

Sessions are drawn from the words of the protocol, whole and damaged, and from bytes of no sense.
"""

import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.engine.parameter_server.messages import KINDS, NUMBERS, Answer, Hello, Push
from harness.engine.parameter_server.session import Session
from tests.launching import until
from tests.parameter_server.scenes import Bench, Pusher, pushed

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
    """A server that nobody has told anything true yet."""
    return Bench(tmp_path_factory.mktemp("fuzzed"), 2, STEPS)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    greeting=st.none() | GREETING,
    said=st.lists(MESSAGES | OF_A_KIND | NOISE | LENGTHS, max_size=6),
)
def test_a_session_of_any_words_ends_alone(
    bench: Bench, greeting: bytes | None, said: list[bytes]
) -> None:
    before = bench.weights.vector.clone()
    with socket.create_connection(("127.0.0.1", bench.port)) as stranger, suppress(OSError):
        stranger.sendall(b"".join([greeting or b"", *said]))
    lines: list = []
    until(lambda: lines.extend(bench.server_loop.door.joined()) or lines, "it is let in")
    bench.server_loop._serve(lines[0])
    assert bench.server_loop._failure is None
    assert bench.weights.vector.isfinite().all()
    if not bench.store.applied.any():
        assert torch.equal(bench.weights.vector, before)


def test_after_strangers_of_every_kind_trainers_do_their_work(tmp_path: Path) -> None:
    made = Bench(tmp_path, 1, STEPS)
    with made.running():
        for said in (b"", b"\xff" * 500, message([0, 9, 9, 9, 9, 9, 9, 9]), frame(b"x"), b"\0" * 8):
            with socket.create_connection(("127.0.0.1", made.port)) as stranger:
                stranger.sendall(said)
        pusher = Pusher(made.port, 0, STEPS)
        for step in range(STEPS):
            assert pusher.push(step, STEPS, pusher.pull()).accepted
        pusher.client.done()
    assert made.counts() == [[1, 1]]


def test_positions_whose_differences_overflow_are_refused(tmp_path: Path) -> None:
    """Each is above the one before as far as int32 can tell."""
    index = torch.tensor([0, 2147483647, -2147483640, 1], dtype=torch.int32)
    assert (index.diff() > 0).all()
    assert Bench(tmp_path, 2, STEPS).weights.fault(pushed(0, [torch.ones(4), index])[1]) == "index"


@pytest.mark.parametrize("nbytes", [-1, 1 << 50])
def test_an_answer_of_no_possible_length_is_not_made_room_for(nbytes: int, tmp_path: Path) -> None:
    class Says:
        def send(self, *message: object) -> None: ...

        def receive(self) -> Answer:
            return Answer(nbytes)

    session = Session(Bench(tmp_path, 2, STEPS).store, Says(), 1.0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="an answer has 0 to 1073741824 bytes"):
        session.ask(0, 0)


def test_the_words_drawn_are_those_of_the_protocol() -> None:
    assert KINDS.index(Hello) == 0 and len(Push.__annotations__) < NUMBERS
