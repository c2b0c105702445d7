"""The link model against the formulas written out over a whole history, and its laws."""

import random
from dataclasses import replace
from statistics import median, median_low

import pytest

from controllers.base import Observation
from controllers.errors import Errors
from controllers.link_model import Hiding, Link, LinkModel, Volume
from tests.controllers.observations import seen

SERIES = ("linear", "noisy", "level", "overhead", "interval", "dense at times", "silent at times")


def history(kind: str, steps: int = 120) -> list[Observation]:
    """Exchanges at densities drawn at random, made by hand: latency 5 ms, rate 1 to 4 MB/s."""
    source = random.Random(kind)
    made = []
    for step in range(steps):
        density = 10 ** source.uniform(-3.3, -0.3)
        received = 3e6 * density
        if kind == "level":
            received = max(received, 60_000)  # the compressor can do no less
        if kind == "overhead":
            received += 30_000
        if kind == "interval":
            received *= source.choice((0.2, 1.0, 1.8))
        if kind == "dense at times" and step % 7 == 3:
            density, received = 1.0, 1.5e6
        if kind == "silent at times" and step % 5 == 2:
            received = 0.0
        noise = 1.0 if kind == "linear" else source.lognormvariate(0, 0.3)
        comm_s = 0.005 + noise * received / (1e6 if step % 40 < 20 else 4e6)
        overlap_window_s = source.uniform(0.05, 0.07)
        made.append(seen(step, density=density, received_bytes=int(received), comm_s=comm_s,
                         exposed_s=max(0.1 * comm_s, comm_s - overlap_window_s),
                         overlap_window_s=overlap_window_s, compress_s=source.uniform(0, 0.004),
                         compute_s=source.uniform(0.09, 0.11), grad_norm=source.uniform(1, 3),
                         dense_bytes=1_000_000))  # fmt: skip
    return made


def learned(past: list[Observation]) -> dict[str, float]:
    """The quantities of the module's docstring, from a whole history."""
    a, crossings, rates = 0.0, [], []
    before = None
    h = w = 0.0
    fitted = 0
    for step, one in enumerate(past):
        if one.received_bytes > 0:
            x, t = one.received_bytes, one.comm_s
            if before and max(x, before[0]) >= 3 * min(x, before[0]):
                crossing = (t * before[0] - before[1] * x) / (before[0] - x)
                crossings.append(min(max(crossing, 0.0), t if x < before[0] else before[1]))
                a = median_low(crossings[-9:])
            before = (x, t)
            rates.append(x / max(t - a, t / 10, 1e-9))
        window = max(0.0, one.overlap_window_s - one.compress_s)
        h = window if step == 0 else 0.9 * h + 0.1 * window
        if one.comm_s > 0 and one.exposed_s > 1.2 * (one.comm_s - h):
            share = min(1.0, one.exposed_s / one.comm_s)
            w = share if fitted == 0 else 0.9 * w + 0.1 * share
            fitted += 1
    sparse = [one for one in past if one.density < 1][-8:]
    bytes_, densities = (
        sum(one.received_bytes for one in sparse),
        sum(one.density for one in sparse),
    )
    slopes = []
    thin = [one for one in past if one.density < 1]
    for one, two in zip(thin, thin[1:], strict=False):
        if max(one.density, two.density) >= 3 * min(one.density, two.density):
            rise = two.received_bytes - one.received_bytes
            slopes.append(rise / (two.density - one.density))
    steepest = max(slopes[-9:], default=bytes_ / densities)
    per = min(max(steepest, 0.5 * bytes_ / densities), bytes_ / densities)
    fixed = (bytes_ - per * densities) / len(sparse)
    dense = [one.received_bytes for one in past if one.density == 1]
    return {"a": a, "r": min(rates[-1], median(rates[-3:])), "h": h, "w": w, "per": per,
            "fixed": fixed, "dense": dense[-1] if dense else fixed + per}  # fmt: skip


def transfer_s(known: dict[str, float], density: float) -> float:
    sparse = known["fixed"] + known["per"] * density
    return (known["dense"] if density == 1 else sparse) / known["r"]


@pytest.mark.parametrize("kind", SERIES)
def test_it_learns_what_the_formulas_say(kind: str) -> None:
    past, model = history(kind), LinkModel()
    for count, one in enumerate(past, 1):
        model.update(one)
        known = learned(past[:count])
        assert model.link.latency_s == pytest.approx(known["a"], abs=1e-12)
        assert model.link.rate == pytest.approx(known["r"])
        assert model.hiding.window_s == pytest.approx(known["h"])
        assert model.hiding.exposed_share == pytest.approx(known["w"])
        for density in (0.001, 0.3, 1.0):
            assert model.transfer_s(density) == pytest.approx(transfer_s(known, density))


def test_a_slower_link_is_believed_at_once_a_single_spike_for_one_exchange() -> None:
    link = Link()
    rates = []
    for comm_s in (1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 0.5, 0.5):
        link.update(100, comm_s)
        rates.append(link.rate)
    assert rates == pytest.approx([100, 100, 100, 20, 100, 100, 100, 200])


def test_latency_is_found_from_a_small_and_a_large_exchange() -> None:
    link = Link()
    for received in (1000, 10_000, 100_000, 100_000):
        link.update(received, 0.02 + received / 1e6)
    assert link.latency_s == pytest.approx(0.02, rel=0.03)
    assert link.rate == pytest.approx(1e6, rel=0.03)


def test_a_slow_first_exchange_is_not_kept_for_latency() -> None:
    link = Link()
    for received, slowness in ((1000, 30), (10_000, 1), (2000, 1), (10_000, 1)):
        link.update(received, 0.002 + slowness * received / 1e6)
    assert link.latency_s == pytest.approx(0.002)


def test_following_a_rate_is_not_taken_for_latency() -> None:
    """Bytes answer the rate, so that all exchanges take as long; a fit would call it latency."""
    link, received = Link(), 1000
    for rate in (1e5, 1e5, 1e6, 1e6, 3e5, 3e5, 1e6, 1e6):
        link.update(received, received / rate)
        received = int(0.05 * link.rate)
    assert link.latency_s == pytest.approx(0, abs=1e-3)
    assert link.rate == pytest.approx(1e6, rel=0.05)


def test_bytes_of_a_level_that_cannot_go_lower_are_found_from_below() -> None:
    """A quantiser's least level costs 60 kB: asked for 300 kB it gets there in a few exchanges."""
    volume, density = Volume(), 0.001
    for step in range(12):
        received = int(max(60_000, 3e6 * density))
        volume.update(seen(step, density=density, received_bytes=received))
        density = volume.density(300_000)
    assert density == pytest.approx(0.1, rel=0.05)


def test_bytes_beside_those_of_the_density_are_told_apart() -> None:
    """Lengths, scales, vectors that are not compressed: 2 kB at any density."""
    volume = Volume()
    for step, density in enumerate((0.001, 0.01, 0.0005, 0.0005, 0.0005)):
        received = int(2000 + 3e6 * density)
        volume.update(seen(step, density=density, received_bytes=received))
    assert volume.per_density == pytest.approx(3e6)
    assert volume.fixed == pytest.approx(2000)
    assert volume.density(5000) == pytest.approx(0.001) and volume.density(1000) == 0


def test_density_one_is_judged_by_its_own_bytes() -> None:
    """Sparse entries cost 6 MB a unit; an all-reduce of everything 1.5 MB."""
    past = seen(0, density=0.01, received_bytes=60_000, dense_bytes=1_000_000)
    unknown, told = Volume(), Volume()
    told.update(replace(past, density=1.0, received_bytes=1_500_000))
    for volume in (unknown, told):
        volume.update(past)
    assert (unknown.bytes(1.0), told.bytes(1.0)) == (6e6, 1.5e6)
    assert unknown.density(1.8e6) == pytest.approx(0.3)
    assert told.density(1.8e6) == 1.0 and told.density(1.2e6) == pytest.approx(0.2)
    told.update(replace(past, density=1.0, received_bytes=2_000_000))
    assert told.bytes(1.0) == 2e6 and told.bytes(0.01) == 6e4


def test_a_last_bucket_that_is_never_hidden_does_not_shrink_the_window() -> None:
    hiding = Hiding()
    for step in range(100):
        hiding.update(
            seen(step, comm_s=0.04, exposed_s=0.004, overlap_window_s=0.06, compress_s=0.001)
        )
    assert hiding.window_s == pytest.approx(0.059)
    assert hiding.exposed_s(0.04) == pytest.approx(0.004)
    assert hiding.exposed_s(0.1) == pytest.approx(0.041)


@pytest.mark.parametrize("w", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("latency_s", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("transfer", [0.0, 0.05, 3.0])
def test_the_mean_over_errors_is_that_of_its_terms(w, latency_s, transfer):
    source = random.Random(1)
    errors, hiding, last = Errors(7), Hiding(), [1.0]
    hiding.window_s, hiding.exposed_share = 0.06, w
    for _ in range(20):
        delays = [latency_s + error * transfer for error in last[-7:]]
        mean = sum(map(hiding.exposed_s, delays)) / len(delays)
        assert errors.exposed_s(hiding, latency_s, transfer) == pytest.approx(mean, abs=1e-12)
        last.append(source.paretovariate(1))
        errors.add(last[-1])
