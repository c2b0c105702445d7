"""Controllers of the local steps between two exchanges: the least that suffices, the best."""

from dataclasses import replace
from itertools import product

import pytest

from controllers.cu_target import CuTarget
from controllers.oracle_horizon import OracleHorizon
from controllers.pace_horizon import PaceHorizon
from profiles.static import Static
from tests.controllers.observations import seen


def exchange(step: int, steps: int, compute_s: float, rate: float, density: float = 1.0):
    """After `steps` of `compute_s` seconds each 1e6 bytes, times density, at `rate` bytes/s."""
    received = round(1e6 * density)
    took_s = received / rate
    return seen(step, local_steps=steps, compute_s=steps * compute_s, compress_s=0.0, comm_s=took_s,
                exposed_s=took_s, received_bytes=received, density=density, dense_bytes=1_000_000,
                overlap_window_s=0.0)  # fmt: skip


@pytest.mark.parametrize("target", [0.5, 0.75, 0.9, 0.95])
@pytest.mark.parametrize("rate", [1e6, 3e6, 1e8])
def test_the_least_horizon_that_has_the_utilisation_is_chosen(target, rate):
    controller = CuTarget(target=target, h_max=1000)
    chosen = controller.horizon(exchange(0, 8, 0.1, rate))
    cost_s = 1e6 / rate

    def utilisation(steps: int) -> float:
        return steps * 0.1 / (steps * 0.1 + cost_s)

    assert utilisation(chosen) >= target - 1e-9
    assert chosen == 1 or utilisation(chosen - 1) < target + 1e-9
    assert controller.state() == {"steps": float(chosen)} and controller.density(None) == 1.0


def test_what_no_horizon_can_reach_takes_the_largest_and_nothing_the_least():
    controller = CuTarget(h_max=16)
    assert controller.horizon(exchange(0, 1, 0.001, 10.0)) == 16
    assert controller.horizon(replace(exchange(0, 1, 1.0, 1e9), exposed_s=0.0)) == 1
    with pytest.raises(ValueError, match=r"target must be in \(0, 1\), got 1"):
        CuTarget(target=1)


@pytest.mark.parametrize("rate", [3e4, 3e5, 3e6, 3e7])
def test_pace_and_oracle_choose_the_pair_of_most_progress_per_second(rate):
    """Where bytes are in proportion to the density and the rate stands still, both know all."""
    own = {"eps": 0.2, "zeta": 0.1, "horizons": (1, 4, 16, 64), "d_min": 0.001, "d_max": 0.5}
    profile = Static(rate_mbit=rate / 125_000 / 0.956)
    pace, oracle = PaceHorizon(**own), OracleHorizon(**own, profile=profile, workers=2)
    expected = max(
        product(own["horizons"], pace._tried),
        key=lambda p: p[1] ** 0.2 * p[0] ** -0.1 / (0.1 + 1e6 * p[1] / rate / p[0]),
    )
    for controller in (pace, oracle):
        density, steps = controller.density(None), 4
        for step in range(20):
            observed = exchange(step, steps, 0.1, rate, density)
            steps = controller.horizon(observed)
            density = controller.density(observed)
        found = [p**0.2 * h**-0.1 / (0.1 + 1e6 * p / rate / h) for h, p in
                 [(steps, density), expected]]  # fmt: skip
        assert steps in own["horizons"] and found[0] == pytest.approx(found[1], rel=0.02)


def test_horizons_must_be_steps():
    with pytest.raises(ValueError, match="horizons must be one or more whole numbers >= 1"):
        PaceHorizon(horizons=())
    with pytest.raises(ValueError, match="zeta must be a number >= 0"):
        OracleHorizon(profile=Static(rate_mbit=1.0), workers=2, zeta=-1)
