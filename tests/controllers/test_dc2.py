"""DC2's monitor and rules against examples worked by hand and the means the paper reports."""

import random
from collections.abc import Iterator
from itertools import islice

import pytest

from controllers.dc2 import DA1, DA2, DA3, DA4, DA5, DC2, DelayMonitor
from tests.controllers.test_contract import observation


def after(controller: DC2, *delays_s: float) -> float:
    """The density it chooses after these delays."""
    density = controller.density(None)
    for step, delay_s in enumerate(delays_s):
        density = controller.density(observation(step, delay_s))
    return density


def test_monitor_while_its_window_fills_and_after() -> None:
    monitor = DelayMonitor(window=3)
    seen = []
    for delay_s in (4.0, 2.0, 6.0, 8.0, 3.0):
        monitor.update(delay_s)
        seen.append((monitor.delay_s, monitor.minimum_s, monitor.average_s, monitor.gradient_s))
    assert seen == [
        (4, 4, 4, 0),
        (2, 2, 3, -2),  # (2 - 4) / 1
        (6, 2, 4, 1),  # (6 - 4) / 2
        (8, 2, 16 / 3, 4 / 3),  # mean of 2 6 8; (8 - 4) / 3
        (3, 2, 17 / 3, 1 / 3),  # mean of 6 8 3; (3 - 2) / 3
    ]


def test_the_minimum_outlives_the_window() -> None:
    monitor = DelayMonitor(window=2)
    for delay_s in (1.0, 5.0, 5.0, 5.0):
        monitor.update(delay_s)
    assert monitor.minimum_s == 1.0


def test_state_is_the_monitors() -> None:
    controller = DA2()
    assert controller.state() == {}
    after(controller, 4.0, 2.0)
    assert controller.state() == {"d": 2.0, "m": 2.0, "a": 3.0, "r": -2.0}


@pytest.mark.parametrize(("controller", "delays_s", "expected"), [
    # a = 1.5, d - a = 0.5, d - m = 1: k - 0.5
    (DA1(k_max=0.9, k_0=0.7), (1.0, 2.0), 0.2),
    (DA1(), (1.0, 1.0), 0.1),  # all equal: unchanged
    (DA1(), (2.0, 1.0), 0.3),  # at the minimum and below the average
    # a = 1.05, band 0.9975 to 1.1025
    (DA2(), (1.0, 1.1), 0.1),
    (DA2(), (1.0, 2.0), 0.08),  # above: 0.8 k
    (DA2(), (2.0, 1.0), 0.105),  # below: k + 0.005
    (DA3(), (1.0, 1.1), 0.1),
    (DA3(), (1.0, 2.0), 0.095),
    (DA3(), (2.0, 1.0), 0.105),
    (DA4(), (2.0, 1.0), 0.105),  # r = -1
    (DA4(), (1.0, 1.5), 0.06),  # x = 0.5 / 1: k (1 - 0.8 * 0.5)
    (DA4(), (1.0, 1.0), 0.1),  # x = 0
    (DA4(), (1.0, 3.0), 0.005),  # x = 2: negative, clamped
    # low threshold 1.25 m, high threshold 1.25 a; the first delay is m, so k rises to 0.105
    (DA5(), (1.0, 1.2), 0.11),  # 1.2 < 1.25 although delays rise
    # a = 2, high 2.5, low 1.25: k (1 - 0.8 (3 - 2.5) / (3 - 1.25))
    (DA5(), (1.0, 3.0), 0.105 * (1 - 0.8 * 0.5 / 1.75)),
    # a = 1.25, high 1.5625; between: x = 0.5 / 1
    (DA5(), (1.0, 1.5), 0.105 * 0.6),
])  # fmt: skip
def test_worked_examples(controller: DC2, delays_s: tuple[float, ...], expected: float) -> None:
    assert after(controller, *delays_s) == pytest.approx(expected, rel=1e-12)


def test_before_the_first_exchange_it_is_k_0() -> None:
    assert DA3(k_0=0.05).density(None) == 0.05


def open_loop_mean(controller: DC2, delays_s: Iterator[float], count: int) -> float:
    """Mean density when delays do not depend on it."""
    steps = enumerate(islice(delays_s, count))
    return sum(controller.density(observation(*step)) for step in steps) / count


def test_open_loop_means_are_the_papers() -> None:
    """DA2 0.034 and DA3 0.145 in Fig. 9: skewed delays for DA2, symmetric ones for DA3's walk."""
    source = random.Random("open loop")
    skewed = iter(lambda: source.lognormvariate(0, 0.3), None)
    symmetric = iter(lambda: source.gauss(1, 0.05), None)
    assert open_loop_mean(DA2(), skewed, 20_000) == pytest.approx(0.033, abs=0.002)
    assert open_loop_mean(DA3(), symmetric, 200_000) == pytest.approx(0.14, abs=0.02)
