"""A profile that no player or shaper can follow is refused, with what would do, and no other."""

import pytest

from harness.config.scales import composed
from harness.emulation.following import Shaped, check
from harness.emulation.star import Star
from harness.validation import checked
from profiles.fluctuating import Fluctuating
from profiles.markov import Markov
from profiles.square import Square
from profiles.static import Static
from profiles.steps import Steps


def square(period_s: float, high_mbit: float = 200.0, low_mbit: float = 50.0) -> Square:
    return Square(high_mbit, low_mbit, period_s)


def shaped(update_s: float = 0.1, dilation: float = 1.0, packet_bytes: int = 25_000) -> Shaped:
    return Shaped(dilation, update_s, packet_bytes)


@pytest.mark.parametrize(("profile", "how", "said"), [
    (square(0.004), shaped(0.002), "update_s must be short beside"),
    (square(0.05), shaped(0.025), "use network.update_s=0.00625"),
    (square(0.05), shaped(0.1), "use network.update_s="),
    (square(0.015), shaped(0.001), "must last 4 packets or bursts of a link, 16 ms at 50"),
    (square(0.008, 200.0, 190.0), shaped(0.001), None),  # hardly a change
    (square(0.1, 500.0, 10.0), shaped(0.01, packet_bytes=62_500), "200 ms at 10 Mbit/s"),
    (Markov(good_mbit=9, bad_mbit=1, mean_good_s=0.1, mean_bad_s=0.1), shaped(), "off their"),
])  # fmt: skip
def test_what_changes_too_fast_is_refused_with_what_would_do(profile, how, said):
    if said is None:
        check(profile, 4, how)
        return
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        check(profile, 4, how)


@pytest.mark.parametrize(("profile", "how"), [
    (Static(100.0), shaped(10.0)),
    (square(1.0), shaped()),
    (square(0.05), shaped(0.00625)),
    (square(0.004), shaped(0.02, dilation=100.0, packet_bytes=1500)),
    (Steps(steps=((0, 10.0), (3, 100.0), (5, 20.0))), shaped()),
    (Fluctuating(low_mbit=50, high_mbit=500, min_s=0.5, max_s=1), shaped()),
])  # fmt: skip
def test_what_a_player_can_follow_is_not_refused(profile, how):
    check(profile, 4, how)


def test_what_it_says_would_do_does():
    with pytest.raises(ValueError, match="use network.update_s=") as refused:
        check(square(0.05), 2, shaped(0.05))
    update_s = float(str(refused.value).rpartition("=")[2].split()[0])
    check(square(0.05), 2, shaped(update_s))


def test_a_run_is_refused_before_it_starts_over_packets_and_not_in_virtual_time():
    fast = ("profile=square", "profile.period_s=0.004", "network.update_s=0.002")
    with pytest.raises(ValueError, match="network: update_s must be short"):
        checked(composed([*fast, "steps=1"])[0])
    checked(composed([*fast, "steps=1", "network=simulated"])[0])


def test_a_packet_is_as_long_as_the_network_lets_nodes_make_it():
    assert Star().packet_bytes(square(1.0), 1.0) == 25_000
    assert Star(offload="keep").packet_bytes(square(1.0), 1.0) is None
