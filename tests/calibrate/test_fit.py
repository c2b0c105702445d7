"""The fit gives back the constants that times were made with."""

from math import ceil, log2, sqrt

import pytest

from harness.calibrate import fit, windows
from harness.calibrate.links import Sample
from harness.virtual.network import Simulated
from profiles.static import Static
from tests.emulation.virtual import virtual

MADE = {"alpha_s": 0.0003, "operation_s": 0.002, "efficiency": 0.9, "wake_s": 0.005}
MADE |= {"message_bytes": 350}
SIZES = 64, 5_000_000, 20_000_000  # what is short, and so long that no waking is felt
BUCKET = fit.Bucket(burst_s=0.002, packet_s=0.001)


def made(
    nodes: int,
    rate_mbit: float,
    collective: str,
    nbytes: int,
    cores: int | None = None,
    bucket: fit.Bucket | None = None,
) -> Sample:
    """What virtual time says of a collective, which so is the same model."""
    idle = (bucket or fit.Bucket())._asdict()
    network = Simulated(**MADE, **idle, cores=cores, real_seconds=True)
    costs = network.costs(Static(rate_mbit=rate_mbit), nodes, 1)
    if collective == "all_reduce":
        seconds = costs.all_reduce(0.0, nbytes, nodes)
    else:
        seconds = costs.all_gather(0.0, [nbytes] * nodes)
    return Sample(collective, nodes, rate_mbit, nbytes, (seconds,))


def samples(cores: int | None = None, bucket: fit.Bucket | None = None) -> list[Sample]:
    return [made(nodes, rate_mbit, collective, nbytes, cores, bucket) for nodes in (2, 4, 8)
            for rate_mbit in (50, 200) for collective in fit.ROUNDS
            for nbytes in SIZES]  # fmt: skip


@pytest.mark.parametrize("bucket", [None, BUCKET])
@pytest.mark.parametrize("cores", [None, 1, 2, 8])
def test_constants_are_found_again(cores, bucket):
    found = fit.links(samples(cores, bucket), cores, bucket)._asdict()
    assert found.pop("bucket") == (bucket or fit.Bucket(0, 0))
    assert found.pop("efficiencies") == {}
    exact = dict.fromkeys(["median", "worst", "noise", "latency_noise"], 0)
    assert found == pytest.approx(MADE | exact, rel=1e-6, abs=1e-9)


def test_what_wakings_may_bound_says_nothing_of_bytes():
    bound = made(8, 50, "all_reduce", 100_000, cores=1)  # 35 ms of bytes, 198 ms of wakings
    assert bound.seconds == pytest.approx(14 * 8**0.5 * MADE["wake_s"])
    found = fit.links([*samples(1), bound], 1)
    assert found[:3] == pytest.approx(list(MADE.values())[:3], abs=1e-9)


def scattered(cores: int | None) -> list[Sample]:
    """What virtual time says of short collectives whose messages are late by chance."""
    found = []
    for nodes in (2, 4, 8):
        network = Simulated(**MADE, latency_noise=0.4, cores=cores, real_seconds=True)
        costs = network.costs(Static(rate_mbit=800), nodes, 1, seed=nodes)
        times_s = []
        for step in range(400):
            costs.noise.begin(step)
            times_s.append(costs.all_reduce(0.0, 64, nodes))
        found.append(Sample("all_reduce", nodes, 800, 64, times_s))
    return found


@pytest.mark.parametrize("cores", [None, 1, 2, 8])
def test_wakings_and_their_noise_are_found_beside_the_rest(cores):
    long = [each for each in samples(cores) if not each.short]
    found = fit.links([*long, *scattered(cores)], cores)
    assert {name: getattr(found, name) for name in MADE} == pytest.approx(MADE, rel=0.05)
    assert found[:3] == pytest.approx(list(MADE.values())[:3], abs=1e-9)
    assert found.noise == pytest.approx(0, abs=1e-9)
    assert found.latency_noise == pytest.approx(0.4, rel=0.15)
    for each in scattered(cores):
        assert fit.predicted_s(found, each, cores) == pytest.approx(each.seconds, rel=0.15)


def test_what_messages_scatter_by_is_no_noise_of_bytes():
    network = Simulated(alpha_s=0.002, operation_s=0.0, noise=0.1, latency_noise=0.25)
    found = []
    for number, rate_mbit in enumerate((50, 200, 800)):
        costs = network.costs(Static(rate_mbit=rate_mbit), 4, 1, seed=number)
        times_s = [costs.all_reduce(0.0, 1000 * rate_mbit, 4) for _ in range(400)]
        found.append(Sample("all_reduce", 4, rate_mbit, 1000 * rate_mbit, times_s))
    of_messages = [0.25 / sqrt(6) * 6 * 0.002 / each.seconds for each in found]
    assert min(of_messages) > 0.03
    assert fit.noise(found) > fit.noise(found, of_messages)
    assert fit.noise(found, of_messages) == pytest.approx(0.1, rel=0.1)


def test_what_does_not_fit_is_told():
    good = samples()
    off = good[1]._replace(times_s=(2 * good[1].seconds,))
    found = fit.links([good[0], off, *good[2:]])
    assert found.worst > 0.2 > found.median
    assert fit.predicted_s(found, good[-1]) == pytest.approx(good[-1].seconds, rel=0.1)


def test_efficiency_is_at_most_1_and_latencies_at_least_0():
    faster = fit.links([each._replace(times_s=(0.5 * each.seconds,)) for each in samples()])
    assert faster.efficiency == 1
    growing = [made(n, 100, "all_reduce", 10_000_000) for n in (2, 3, 4, 5)]
    assert min(fit.links(growing)[:3]) >= 0


def test_long_ones_alone_say_nothing_of_wakings():
    found = fit.links([each for each in samples() if not each.short])
    assert (found.wake_s, found.latency_noise) == (0, 0)
    assert found[:3] == pytest.approx(list(MADE.values())[:3], abs=1e-9)


def test_samples_that_do_not_tell_are_refused():
    with pytest.raises(ValueError, match="4 samples at least are needed, got 2"):
        fit.links([each for each in samples() if not each.short][:2])


def repeated(relative: float, nbytes: int = 1_000_000) -> list[Sample]:
    """Equal collectives as virtual time repeats them on a machine that slows down by a fifth."""
    network = Simulated(**MADE, noise=relative)
    found = []
    for number, rate_mbit in enumerate((50, 200, 800)):
        costs = network.costs(Static(rate_mbit=rate_mbit), 4, 1, seed=number)
        times_s = [(1 + i / 1000) * costs.all_reduce(0.0, nbytes, 4) for i in range(200)]
        found.append(Sample("all_reduce", 4, rate_mbit, nbytes, times_s))
    return found


@pytest.mark.parametrize("relative", [0.0, 0.05, 0.1])
def test_the_noise_that_times_were_made_with_is_found_again(relative):
    assert fit.noise(repeated(relative)) == pytest.approx(relative, rel=0.1, abs=2e-3)


def test_stalls_and_what_is_all_latency_are_no_noise():
    stalled = [
        each._replace(times_s=[10 * t if i % 20 == 0 else t for i, t in enumerate(each.times_s)])
        for each in repeated(0.1)
    ]
    assert fit.noise(stalled) == pytest.approx(0.1, rel=0.3)
    assert fit.noise(repeated(0.5, nbytes=64)) == 0


def test_buckets_in_a_row_cost_an_operation_each():
    known = fit.Links(0.0004, 0.006, 0.9, 0, 0, 0.0, bucket=fit.Bucket(0.002))
    samples = [Sample("all_reduce", nodes, rate_mbit, nbytes, (1.0,), buckets) for nodes in (2, 4)
               for rate_mbit in (50, 800)
               for nbytes, buckets in ((500_000, 1), (4_000_000, 1), (500_000, 8))]  # fmt: skip
    samples = [s._replace(times_s=(fit.predicted_s(known, s),)) for s in samples]
    found = fit.links(samples, bucket=known.bucket)
    assert found.operation_s == pytest.approx(0.006, rel=0.01)
    assert found.efficiency == pytest.approx(0.9, rel=0.01) and not found.efficiencies


def test_a_rate_with_a_share_of_its_own_is_told_apart():
    known = fit.Links(0.0, 0.001, 0.9, 0, 0, 0.0, efficiencies={50: 0.7, 200: 0.9, 800: 0.95})
    samples = [Sample("all_reduce", nodes, rate_mbit, 5000 * rate_mbit * scale, (1.0,))
               for nodes in (2, 4) for rate_mbit in (50, 200, 800)
               for scale in (16, 64, 256)]  # fmt: skip
    samples = [s._replace(times_s=(fit.predicted_s(known, s),)) for s in samples]
    found = fit.links(samples)
    assert found.efficiencies == pytest.approx(known.efficiencies, rel=0.02)
    assert found.median < 0.02


RTT_MS = 40.0
SIZES_BYTES = (1 << 16, 1 << 20)
FIRST_BYTES = 10 * 1448  # Linux's first window (RFC 6928), at MTU 1500


@virtual
def test_windows_are_fitted_to_transfers_over_a_delay() -> None:
    """By bounds that hold on a busy machine: windows double once a round trip at most."""
    taken = windows.take(1, (RTT_MS,), SIZES_BYTES)
    assert [told[:2] for told in taken] == [(RTT_MS, nbytes) for nbytes in SIZES_BYTES]
    for _, nbytes, seconds in taken:
        flights = ceil(log2(1 + nbytes / FIRST_BYTES))
        assert seconds > (flights - 0.5) * RTT_MS / 1000, taken
    found = windows.fit([windows.row(*told) for told in taken])
    assert 1000 < found.initial_window_bytes < 2 * FIRST_BYTES, (found, taken)
