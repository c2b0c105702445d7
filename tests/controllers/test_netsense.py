"""NetSenseML's controller against its algorithm written out over whole histories."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from controllers.netsense import NetSense
from controllers.path_monitor import PathMonitor
from tests.controllers.observations import seen

Exchange = tuple[int, float, float]  # bytes received, RTT in s, time of its end in s
SERIES = ("log-normal", "steady", "jumping", "slow")


def estimates(past: Sequence[Exchange], window: Any) -> tuple[float, float]:
    """BtlBw and RTprop, from the whole past."""
    fast = past if window is None else past[-(10 if window == "bbr" else window) :]
    short = [one for one in past if one[2] >= past[-1][2] - 10] if window == "bbr" else fast
    return max(size / rtt for size, rtt, _ in fast), min(rtt for _, rtt, _ in short)


def algorithm_1(past: Sequence[Exchange], window: Any = None, gain: float = 1.0) -> list[float]:
    """The ratio of every exchange of `past` and of the one after it, printed constants."""
    ratios, over = [0.01], None
    for i in range(1, len(past) + 1):
        ratio, (size, rtt, _) = ratios[-1], past[i - 1]
        if over is None:
            if rtt > 2 * min(one[1] for one in past[:i]) or ratio == 1 or i == 20:
                over = i
            ratios.append(ratio if over else min(1, ratio + 0.05))
            continue
        fastest, shortest = estimates(past[:i], window)
        down = size > 0.9 * gain * fastest * shortest
        ratios.append(max(0.005, ratio / 2) if down else min(1, ratio + 0.01))
    return ratios


def ratios_of(controller: NetSense, past: Sequence[Exchange]) -> list[float]:
    ratios = [controller.density(None)]
    for step, (size, rtt_s, time_s) in enumerate(past):
        observed = seen(step, density=ratios[-1], received_bytes=size, comm_s=rtt_s, time_s=time_s)
        ratios.append(controller.density(observed))
    return ratios


def series(kind: str, seed: int, count: int = 150) -> list[Exchange]:
    source = random.Random(f"{kind} {seed}")
    past, time_s = [], 0.0
    for _ in range(count):
        rtt_s = {
            "log-normal": source.lognormvariate(-2, 0.3),
            "steady": 0.2,
            "jumping": source.choice([0.01, 0.1, 3.0]),
            "slow": source.uniform(4, 7),
        }[kind]
        time_s += rtt_s + 0.05
        past.append((source.randrange(1000, 100_000), rtt_s, time_s))
    return past


@pytest.mark.parametrize("window", [None, 1, 5, 50, "bbr"])
@pytest.mark.parametrize("kind", SERIES)
def test_ratios_are_those_of_the_algorithm(kind: str, window: Any) -> None:
    for seed in range(5):
        past = series(kind, seed)
        for gain in (1.0, 3.0):
            controller = NetSense(window=window, bdp_gain=gain)
            assert ratios_of(controller, past) == pytest.approx(algorithm_1(past, window, gain))


def test_start_up_rises_for_twenty_exchanges_and_stays_for_one() -> None:
    found = ratios_of(NetSense(), [(1000, 0.1, 0.1 * step) for step in range(21)])
    rising = [0.01 + 0.05 * step for step in range(20)]
    assert found == pytest.approx([*rising, 0.96, 0.48])  # 1000 > 0.9 * 1000


def test_start_up_ends_at_twice_the_shortest_time() -> None:
    past = [(100, 0.2, 1.0), (100, 0.1, 2.0), (100, 0.2, 3.0), (100, 0.21, 4.0), (10, 0.1, 5.0)]
    assert ratios_of(NetSense(), past) == pytest.approx([0.01, 0.06, 0.11, 0.16, 0.16, 0.17])


def test_start_up_ends_at_ratio_one() -> None:
    past = [(100, 0.1, float(step)) for step in range(4)]
    found = ratios_of(NetSense(beta_1=0.5), past)
    assert found == pytest.approx([0.01, 0.51, 1.0, 1.0, 0.5])


def test_a_window_forgets_and_no_window_does_not() -> None:
    past = [(100, 0.1, 1.0), (400, 0.2, 12.0), (300, 0.4, 12.5)]
    expected = {None: (2000.0, 0.1), 1: (750.0, 0.4), 2: (2000.0, 0.2), "bbr": (2000.0, 0.2)}
    for window, (btlbw, rtprop_s) in expected.items():
        monitor = PathMonitor(window)
        for size, rtt_s, time_s in past:
            monitor.update(time_s, size, rtt_s)
        assert (monitor.btlbw, monitor.rtprop_s) == (btlbw, rtprop_s)
        assert monitor.bdp_bytes == btlbw * rtprop_s
        assert (monitor.ebb, monitor.size_bytes, monitor.shortest_s) == (750, 300, 0.1)


def test_state_is_the_monitors_and_the_phase() -> None:
    controller = NetSense(startup_steps=2)
    assert controller.state() == {}
    path = {"EBB": 1000.0, "BtlBw": 1000.0, "RTprop": 0.1, "BDP": 100.0}
    for sensing in (0.0, 1.0, 1.0):
        controller.density(seen(0, received_bytes=100, comm_s=0.1))
        assert controller.state() == {**path, "sensing": sensing}


def closed_loop(controller: NetSense, size_of: Callable, rate_mbit: float, steps: int) -> list:
    """Ratios on a link of 1 ms and `rate_mbit`, where an exchange takes L + size / rate."""
    ratios, time_s = [controller.density(None)], 0.0
    for step in range(steps):
        size = size_of(ratios[-1])
        rtt_s = 0.001 + size / (125_000 * rate_mbit)
        time_s += rtt_s
        observed = seen(step, density=ratios[-1], received_bytes=size, comm_s=rtt_s, time_s=time_s)
        ratios.append(controller.density(observed))
    return ratios


def received(ratio: float) -> int:
    """ResNet-18 from 7 others as values and int64 positions, or by a ring at ratio 1."""
    n = 11_227_812
    return 7 * 12 * int(ratio * n) if ratio < 1 else 2 * 7 * 4 * n // 8


@pytest.mark.parametrize("window", [None, 10, "bbr"])
@pytest.mark.parametrize("rate_mbit", [200, 800, 2000])
def test_as_published_it_stays_at_its_floor_and_a_gain_lifts_it(rate_mbit, window):
    """Whatever the window: the BDP of times that include the transfer is the smallest transfer."""
    settled = closed_loop(NetSense(window=window), received, rate_mbit, 400)[100:]
    assert sum(settled) / len(settled) < 0.008
    lifted = closed_loop(NetSense(window=window, bdp_gain=8), received, rate_mbit, 400)[100:]
    assert sum(lifted) / len(lifted) > 0.015
