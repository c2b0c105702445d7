"""Noise of collectives: of mean 1, the same for all workers, and again for the same seed."""

import numpy as np
import pandas as pd
import pytest

from harness.config.settings import BadSetting
from harness.virtual.costs import Costs
from harness.virtual.noise import Noise
from profiles.static import Static
from tests.virtual.runs import DETERMINED, settings_of, simulated, weights
from tests.virtual.test_costs import ASKED, MB, Made
from tests.virtual.threads import costs_of

NOISE = "network.noise=0.2"
SMALL = ("workers=3", "method=topk", "controller.density=0.1", *DETERMINED)
ALIKE = ("network.alike=true", "emulation.compute=replay", "network.compress_scale=0")


def factors(noise: Noise, exchanges: int, each: int) -> np.ndarray:
    """[exchanges, each]."""
    found = []
    for exchange in range(exchanges):
        noise.begin(exchange)
        found.append([noise.factor() for _ in range(each)])
    return np.array(found)


@pytest.mark.parametrize("relative", [0.01, 0.1, 1.0])
def test_factors_have_mean_1_and_the_deviation_that_was_asked_for(relative):
    drawn = factors(Noise(relative, seed=3), exchanges=2000, each=50)
    assert drawn.min() > 0
    assert drawn.mean() == pytest.approx(1, abs=5 * relative / drawn.size**0.5)
    assert drawn.std() == pytest.approx(relative, rel=0.05)
    # collectives of an exchange, and the same one of neighbours, have nothing to do with each other
    inside, after = drawn[:, 0] - 1, drawn[1:, 0] - 1
    for other, own in ((drawn[:, 1] - 1, inside), (after, inside[:-1])):
        assert abs(np.mean(other * own)) < 5 * relative**2 / len(own) ** 0.5


def test_a_factor_is_told_by_seed_exchange_and_number():
    whole = factors(Noise(0.1, seed=3), exchanges=5, each=4)
    assert (factors(Noise(0.1, seed=3), exchanges=5, each=2) == whole[:, :2]).all()
    gone_on = Noise(0.1, seed=3)
    gone_on.begin(4)
    assert [gone_on.factor() for _ in range(2)] == list(whole[4, :2])
    gone_on.begin(4)  # as every worker says
    assert [gone_on.factor() for _ in range(2)] == list(whole[4, 2:])
    assert not (factors(Noise(0.1, seed=4), exchanges=5, each=4) == whole).any()


def test_collectives_of_an_exchange_have_its_factor_together():
    noise, drawn, ends = Noise(seed=3, exchange=0.3), [], []
    costs = costs_of(Static(rate_mbit=8.0), 4, noise=noise)
    for exchange in range(5000):
        noise.begin(exchange)
        drawn.append(noise.of_exchange)
        ends.append([costs.all_reduce(0.0, MB, 4), costs.all_gather(0.0, [MB] * 4)])
    assert np.mean(drawn) == pytest.approx(1, abs=0.02)
    assert np.std(drawn) == pytest.approx(0.3, rel=0.1)
    for took in np.transpose(ends):
        assert list(took) == pytest.approx(list(took[0] / drawn[0] * np.array(drawn)))


@pytest.mark.parametrize("messages", [1, 4, 25])
def test_factors_of_latency_are_drawn_apart_and_leave_the_others_as_they_were(messages):
    both = Noise(0.1, seed=3, latency=1.0)
    latency = []
    for exchange in range(20_000):
        both.begin(exchange)
        latency.append(both.latency_factor(messages))
    assert np.mean(latency) == pytest.approx(1, abs=0.05) and min(latency) > 0
    assert np.std(latency) == pytest.approx(1 / np.sqrt(messages), rel=0.2)  # independent
    assert (
        factors(Noise(0.1, seed=3, latency=1.0), 5, 4) == factors(Noise(0.1, seed=3), 5, 4)
    ).all()
    assert Noise(0.1, seed=3).latency_factor(messages) == 1.0


@pytest.mark.parametrize("messages", [1, 7])
def test_some_worker_is_last_and_the_others_are_as_early_as_their_messages_deviate(messages):
    noise, found = Noise(seed=3, latency=0.5), []
    for exchange in range(5000):
        noise.begin(exchange)
        found.append(noise.early(2, messages))
    early = np.array(found)
    assert (early.min(axis=1) == 0).all() and (early.max(axis=1) > 0).all()
    apart = early[:, 0] - early[:, 1]
    assert apart.std() == pytest.approx(2**0.5 * 0.5 * messages**0.5, rel=0.1)
    assert abs(apart.mean()) < 5 * apart.std() / len(apart) ** 0.5
    assert Noise(0.1, seed=3).early(3, messages) == [0, 0, 0]
    assert noise.early(1, 0) == [0]


def took_s(collective: str, noise: Noise, **told: float) -> tuple[float, dict[str, float]]:
    costs = costs_of(Made({}, delay_ms=told.pop("delay_ms", 0.0)), 4, noise=noise, **told)
    asked, *_ = ASKED[collective]
    return getattr(costs, collective)(1.0, *asked) - 1, costs.carried


@pytest.mark.parametrize("collective", ASKED)
def test_messages_and_bytes_take_so_much_longer_and_delays_do_not(collective):
    factor = Noise(0.3, seed=1).factor()
    told = {"alpha_s": 0.01, "operation_s": 0.02}
    (exact_s, carried), (noisy_s, again) = (
        took_s(collective, Noise(relative, seed=1), **told) for relative in (0.0, 0.3)
    )
    assert noisy_s == pytest.approx(factor * exact_s) and factor != 1
    assert again == carried
    (exact_s, _), (noisy_s, _) = (
        took_s(collective, noise, delay_ms=10.0) for noise in (Noise(), Noise(0.3, seed=1))
    )
    undelayed_s = took_s(collective, Noise())[0]
    assert noisy_s - exact_s == pytest.approx((factor - 1) * undelayed_s)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all", "send"])
def test_noise_of_latency_is_of_what_bytes_do_not_take(collective):
    told = {"alpha_s": 0.01, "operation_s": 0.02}
    without_s, exact_s = took_s(collective, Noise())[0], took_s(collective, Noise(), **told)[0]
    noise = Noise(seed=1, latency=1.0)
    factor = Noise(seed=1, latency=1.0).latency_factor(ASKED[collective][2])
    noisy_s = took_s(collective, noise, **told)[0]
    assert factor != 1
    assert noisy_s - without_s == pytest.approx(factor * (exact_s - without_s))


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all", "send"])
def test_noise_of_latency_is_of_wakings_too(collective):
    exact_s = took_s(collective, Noise(), wake_s=100.0)[0]
    factor = Noise(seed=1, latency=1.0).latency_factor(ASKED[collective][2])
    noisy_s = took_s(collective, Noise(seed=1, latency=1.0), wake_s=100.0)[0]
    assert factor != 1 and noisy_s == pytest.approx(factor * exact_s)


def test_a_stretched_collective_meets_the_rates_of_its_own_time():
    changing = Made({0: [(0, 1.0), (2, 0.5)], 1: [(0, 1.0), (2, 0.5)]})
    factor = Noise(0.3, seed=1).factor()
    end_s = costs_of(changing, 2, noise=Noise(0.3, seed=1)).all_reduce(0.0, 4 * MB, 2)
    assert end_s == pytest.approx(2 + (4 * factor - 2) / 0.5)


def test_queues_of_competing_flows_are_stretched_too():
    contended, factor = Made({}, competing=(0.0, 1)), Noise(0.3, seed=1).factor()

    def costs(relative: float) -> Costs:
        noise = Noise(relative, seed=1)
        return costs_of(contended, 2, noise=noise, queue_bytes=0.2 * MB)

    ring_s = [costs(relative).all_reduce(0.0, 200, 2) for relative in (0.0, 0.3)]
    assert ring_s[1] == pytest.approx(factor * ring_s[0])
    sent_s = [costs(relative).send(0.0, [[0, 1], [0, 0]]) for relative in (0.0, 0.3)]
    assert sent_s[1] == pytest.approx(factor * sent_s[0])


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    return simulated(tmp_path_factory.mktemp("noisy") / "a", *SMALL, NOISE, "steps=6")


def ends(run) -> pd.DataFrame:
    """Of communication, by step and rank."""
    steps = pd.read_csv(run / "steps.csv")
    return steps.pivot(index="step", columns="rank", values="time_s")


def test_every_worker_sees_the_same_times_and_the_same_seed_the_same_bits(noisy, tmp_path):
    table = ends(noisy)
    assert (table.nunique(axis=1) == 1).all()
    assert table[0].diff().nunique() == 5  # no two steps alike
    again = simulated(tmp_path / "again", *SMALL, NOISE, "steps=6")
    for name in ("steps.csv", "links.csv", "timeline.csv"):
        assert (again / name).read_bytes() == (noisy / name).read_bytes(), name
    other = simulated(tmp_path / "other", *SMALL, NOISE, "steps=6", "seed=1")
    assert not (ends(other)[0] == table[0]).any()


WOKEN = ("network.latency_noise=0.8", "network.wake_s=0.002")


def test_workers_end_apart_where_messages_are_late_and_nobody_waits_longer(tmp_path, monkeypatch):
    apart = simulated(tmp_path / "apart", *SMALL, *WOKEN, "steps=6")
    again = simulated(tmp_path / "again", *SMALL, *WOKEN, "steps=6")
    assert (apart / "steps.csv").read_bytes() == (again / "steps.csv").read_bytes()
    table = ends(apart)
    assert (table.nunique(axis=1) > 1).all()
    assert (table.max(axis=1) - table.min(axis=1)).max() < 0.02
    assert table.idxmax(axis=1).nunique() > 1  # not always the same is last
    monkeypatch.setattr(Costs, "early_s", lambda costs, *asked: np.zeros(3))
    together = ends(simulated(tmp_path / "together", *SMALL, *WOKEN, "steps=6"))
    assert table.max(axis=1).to_numpy() == pytest.approx(together[0].to_numpy())


def test_a_run_that_goes_on_has_workers_as_far_apart(tmp_path):
    whole = simulated(tmp_path / "whole", *SMALL, *WOKEN, "steps=6")
    begun = simulated(tmp_path / "begun", *SMALL, *WOKEN, "steps=3")
    gone_on = simulated(tmp_path / "on", *SMALL, *WOKEN, "steps=6", f"resume_from={begun}")
    expected = ends(whole).loc[3:]
    pd.testing.assert_frame_equal(ends(gone_on), expected)


def test_without_noise_every_number_is_as_it_was(noisy, tmp_path):
    default, none = (
        simulated(tmp_path / f"{len(asked)}", *SMALL, "steps=6", *asked)
        for asked in ((), ("network.noise=0",))
    )
    assert (default / "steps.csv").read_bytes() == (none / "steps.csv").read_bytes()
    took_s = ends(default)[0].diff()[1:].to_numpy()
    assert took_s == pytest.approx(took_s.mean())
    for name, value in weights(default).items():
        assert value.equal(weights(noisy)[name]), name  # times change, training does not


def test_a_run_that_goes_on_has_the_noise_it_would_have_had(noisy, tmp_path):
    begun = simulated(tmp_path / "begun", *SMALL, NOISE, "steps=3")
    gone_on = simulated(tmp_path / "on", *SMALL, NOISE, "steps=6", f"resume_from={begun}")
    whole = pd.read_csv(noisy / "steps.csv")
    expected = whole[whole.step >= 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv(gone_on / "steps.csv"), expected)


def test_one_who_stands_for_all_and_what_is_repeated_have_the_noise_of_everybody(tmp_path):
    asked = ("workers=3", "steps=30", "method=topk", "controller.density=0.1", "bucket_mb=0.1",
             NOISE, *ALIKE)  # fmt: skip
    everybody, one, repeated = (
        simulated(tmp_path / f"{number}", *asked, *more)
        for number, more in enumerate(
            (("network.alike=false",), ("network.repeat=0",), ("network.repeat=1",))
        )
    )
    for run in (one, repeated):
        assert (run / "steps.csv").read_bytes() == (everybody / "steps.csv").read_bytes()


@pytest.mark.parametrize(
    ("key", "most"), [("noise", 1), ("exchange_noise", 1), ("latency_noise", 3)]
)
@pytest.mark.parametrize("value", ["-0.1", "3.5", "true", ".nan"])
def test_what_is_no_share_of_a_time_is_refused(key, most, value):
    with pytest.raises(
        BadSetting, match=rf"{key} must be a (finite number|number in \[0, {most}\])"
    ):
        settings_of(f"network.{key}={value}", "steps=1")
