"""What the choice of virtual time tells its cost model."""

import pytest

from harness.simulate.network import Simulated
from profiles.static import Static

TOLD = {"alpha_s": 0.001, "operation_s": 0.002, "wake_s": 0.003}


def handled(nodes: int, dilation: float = 1.0, **told) -> list[float]:
    """Multiples of what was told."""
    costs = Simulated(**TOLD, **told).costs(Static(rate_mbit=8.0), nodes, 1, dilation)
    return [getattr(costs, name) / value for name, value in TOLD.items()]


@pytest.mark.parametrize(("nodes", "crowd"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_ranks_that_share_cores_handle_messages_together(nodes, crowd):
    assert handled(nodes, cores=2) == pytest.approx([crowd, crowd, 1])
    assert handled(nodes) == pytest.approx([1, 1, 1])
    profile = Static(rate_mbit=8.0)
    assert Simulated(cores=2).costs(profile, nodes, 1).crowd == crowd
    assert Simulated().costs(profile, nodes, 1).crowd == 1


def test_seconds_of_a_machine_are_divided_by_the_dilation():
    assert handled(4, 8.0, real_seconds=True) == pytest.approx([1 / 8] * 3)
    assert handled(4, 8.0) == pytest.approx([1] * 3)


def test_a_waking_has_bounds():
    with pytest.raises(ValueError, match=r"wake_s must be a number in \[0, 10\]"):
        Simulated(wake_s=-1.0)
