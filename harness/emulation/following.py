"""Check whether a player and its shapers can follow a profile. Others are refused.

A player reads the profile every `update_s`. Shorter conditions are missed or held too long. A
shaper sends a packet at the rate it began with, and keeps a burst of credit. Traffic never sees
conditions that last no longer than a few packets or bursts.
"""

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.emulation.packets import BURST_US, LARGEST_BYTES
from profiles.base import Link, Profile, Way

NOTICED = 0.1  # of a rate: a smaller difference is not looked at
MOST_WRONG_SHARE = 0.2  # of the time: by a fifth of it, a mean rate is another's
PACKETS = 4  # whole ones, or bursts, that a rate has to last
LEAST_S = 0.001  # real, between looks
_LOOKS, _FINER = 250, 4  # moments of the plan that are tried, and looks between two
_LINKS: tuple[tuple[int, Way], ...] = ((0, "up"), (0, "down"), (1, "up"))  # others are like these

Conditions = Callable[[float], Link]  # of a link, by emulated time
Rates = NDArray[np.float64]  # Mbit/s


class Stay(NamedTuple):
    """A rate that holds for a while, in real units."""

    rate_mbit: float
    length_s: float


class Shaped(NamedTuple):
    """The emulation's dilation, period and packet size, which limit what can be followed."""

    dilation: float
    update_s: float  # real
    packet_bytes: int | None  # longest; None: as long as the kernel's segments


def check(profile: Profile, nodes: int, shaped: Shaped) -> None:
    """Raise ValueError for a profile that changes too fast, and suggest a remedy."""
    extremes = profile.extremes()
    if extremes.lowest_mbit == extremes.highest_mbit:
        return
    for node, way in _LINKS:
        if node < nodes:
            _check_link(partial(profile.link, node=node, way=way), shaped)


def _check_link(conditions: Conditions, shaped: Shaped) -> None:
    wanted = _finely(conditions, shaped)
    share = _wrong_share(conditions, wanted, shaped)
    if share > MOST_WRONG_SHARE:
        raise ValueError(
            f"update_s must be short beside what rates of the profile last, got {shaped.update_s:g}"
            f", with which links are off their rate for {share:.0%} of the time, more than "
            f"{MOST_WRONG_SHARE:.0%}; use {_would_do(conditions, shaped)}"
        )
    if stay := _too_short(wanted, shaped):
        raise ValueError(
            f"rates of the profile must last {PACKETS} packets or bursts of a link, "
            f"{1000 * _needed_s(stay, shaped):.3g} ms at {stay.rate_mbit:g} Mbit/s, got "
            f"{1000 * stay.length_s:.3g} ms; use slower changes or a higher emulation.dilation"
        )


def _would_do(conditions: Conditions, shaped: Shaped) -> str:
    """Suggest half the period, a quarter, ..., as far as a player can go, or something else."""
    finer = shaped.update_s / 2
    while finer >= LEAST_S:
        closer = shaped._replace(update_s=finer)
        wanted = _finely(conditions, closer)
        right = _wrong_share(conditions, wanted, closer) <= MOST_WRONG_SHARE
        if right and not _too_short(wanted, closer):
            return f"network.update_s={finer:g}"
        finer /= 2
    return "slower changes or a higher emulation.dilation"


def _wrong_share(conditions: Conditions, wanted: Rates, shaped: Shaped) -> float:
    """Return the share of time in which a player holds a rate other than `wanted`."""
    update_s = shaped.update_s / shaped.dilation
    held = np.array([conditions(number * update_s).rate_mbit for number in range(_LOOKS)])
    wrong = np.abs(held.repeat(_FINER) - wanted) > NOTICED * wanted
    return float(wrong.mean())


def _finely(conditions: Conditions, shaped: Shaped) -> Rates:
    """Return rates at emulated times between the plan's moments, where rounding decides nothing."""
    times = (np.arange(_LOOKS * _FINER) + 0.5) * shaped.update_s / shaped.dilation / _FINER
    return np.array([conditions(float(at)).rate_mbit for at in times])


def _too_short(wanted: Rates, shaped: Shaped) -> Stay | None:
    """Return the slowest stay below a few packets or bursts, if such stays are frequent."""
    stays = _stays(wanted / shaped.dilation, shaped.update_s / _FINER)
    short = [stay for stay in stays if stay.length_s < _needed_s(stay, shaped)]
    if sum(stay.length_s for stay in short) <= MOST_WRONG_SHARE * _LOOKS * shaped.update_s:
        return None
    return min(short, key=lambda stay: stay.rate_mbit)


def _needed_s(stay: Stay, shaped: Shaped) -> float:
    longest = shaped.packet_bytes or LARGEST_BYTES
    return PACKETS * max(BURST_US / 1e6, longest / (stay.rate_mbit * 125_000))


def _stays(rates: Rates, every_s: float) -> list[Stay]:
    """Return the constant stretches of `rates`, one per `every_s`, without the unended last."""
    changed = np.abs(np.diff(rates)) > NOTICED * rates[:-1]
    numbers = np.concatenate([[0], np.cumsum(changed)])
    parts = [list(part) for _, part in groupby(zip(numbers, rates, strict=True), lambda p: p[0])]
    return [Stay(float(part[0][1]), len(part) * every_s) for part in parts[:-1]]
