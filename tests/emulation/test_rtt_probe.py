"""Round trips are those of packets, whoever is late to read them."""

import time

from harness.emulation import rtt_probe
from harness.emulation.network import Network
from harness.emulation.probe import Ends
from harness.emulation.star import Star
from tests.emulation.inside import Flat, inside

LATE_S = 0.03


def around(network: Network) -> list[Ends]:
    """From every node to the next."""
    ring = zip(network.nodes, [*network.nodes[1:], network.nodes[0]], strict=True)
    return [Ends(near.namespace, far.namespace, far.address) for near, far in ring]


@inside
def test_who_reads_late_finds_no_longer_round_trips() -> None:
    answered = rtt_probe._answer

    def late(*asked: object) -> None:
        time.sleep(LATE_S)
        answered(*asked)  # type: ignore[arg-type]

    with Star().up(3, Flat(100.0), 1.0) as network:
        rtt_probe._answer = late
        taken_ms = rtt_probe.round_trips_ms(around(network))
    assert len(taken_ms) == 3
    assert all(ms is not None and 0 < ms < 1000 * LATE_S / 3 for ms in taken_ms), taken_ms


@inside
def test_what_never_comes_back_took_no_time_at_all() -> None:
    with Star().up(3, Flat(100.0), 1.0) as network:
        network._ip.link("set", index=network.nodes[2].port, state="down")
        answered, *unanswered = rtt_probe.round_trips_ms(around(network))
    assert answered is not None and unanswered == [None, None]
