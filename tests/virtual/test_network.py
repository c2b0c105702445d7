"""What the choice of virtual time tells its cost model."""

import pytest

from harness.emulation.packets import LARGEST_BYTES
from harness.emulation.star import Star
from harness.emulation.topology import PACKET_S
from harness.virtual.network import Simulated
from profiles.static import Static

TOLD = {"alpha_s": 0.001, "operation_s": 0.002, "wake_s": 0.003}


def handled(nodes: int, dilation: float = 1.0, **told) -> list[float]:
    """Multiples of what was told."""
    costs = Simulated(**TOLD, **told).costs(Static(rate_mbit=8.0), nodes, 1, dilation)
    return [getattr(costs, name) / value for name, value in TOLD.items()]


@pytest.mark.parametrize(("nodes", "cpu_oversubscription"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_ranks_that_share_cores_handle_messages_together(nodes, cpu_oversubscription):
    assert handled(nodes, cores=2) == pytest.approx([cpu_oversubscription, 1, 1])
    assert handled(nodes) == pytest.approx([1, 1, 1])
    profile = Static(rate_mbit=8.0)
    assert Simulated(cores=2).costs(profile, nodes, 1).cpu_oversubscription == cpu_oversubscription
    assert Simulated().costs(profile, nodes, 1).cpu_oversubscription == 1


def test_seconds_of_a_machine_are_divided_by_the_dilation():
    assert handled(4, 8.0, real_seconds=True) == pytest.approx([1 / 8] * 3)
    assert handled(4, 8.0) == pytest.approx([1] * 3)


@pytest.mark.parametrize("rate_mbit", [3, 50, 400, 10_000])
@pytest.mark.parametrize("dilation", [1.0, 8.0])
def test_packets_are_as_long_as_those_of_real_nodes(rate_mbit, dilation):
    told = {"packet_s": PACKET_S, "real_seconds": True}
    profile = Static(rate_mbit=rate_mbit)
    real = Star().packet_bytes(profile, dilation) or LARGEST_BYTES
    payload = Simulated(**told).costs(profile, 2, 1, dilation).packet_bytes
    assert payload % 1448 == 0 and payload > 0
    assert payload <= real < payload + 2 * 1500
    assert Simulated().costs(profile, 2, 1, dilation).packet_bytes == 0
