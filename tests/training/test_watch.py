"""A watch sees what is there, at the steps it is asked for, and changes nothing."""

import math

import pytest
import torch
from torch import nn

from compressors.activations.dct_mp import DCTMP
from compressors.activations.rows import row_mask, row_thresholds
from compressors.dct_dp import DCTDP
from compressors.threshold_topk import ThresholdTopK
from harness.config.settings import BadSetting
from harness.config.watch import Watch
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.training.watch import BINS, Watching
from harness.records.run_directory import Bin, Watched
from harness.reporting.analysis import load
from tests.exchange.test_reduction import LAYOUTS, exchange, grads, reduction
from tests.virtual.runs import DETERMINED, over_gloo, settings_of, simulated, weights

RUN = ("workers=1", "batch_size=16", "model=mlp", "model.hidden=[40]", "parallel=split",
       "activations=dct_mp", "steps=5")  # fmt: skip
WATCH = ("+watch._target_=harness.config.watch.Watch", "+watch.every=2",
         "+watch.gradients=[3.weight]", "+watch.densities=[0.5,0.1]",
         "+watch.histogram_at=[3]")  # fmt: skip


@pytest.mark.parametrize("density", [0.01, 0.1, 0.5, 1.0])
def test_a_rows_threshold_is_what_its_mask_keeps(density: float) -> None:
    rows = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    reached = rows.abs() >= row_thresholds(rows, density)[:, None]
    assert torch.equal(reached, row_mask(rows, density))


def test_numbers_are_those_of_the_steps_own_activations(tmp_path) -> None:
    """Of the last micro-batch of a step; the cut comes after the look."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    watch = Watch(every=2, densities=[0.25], histogram_at=[1])
    Watching(watch, tmp_path, 0, accumulate=2, first=4, looks=lambda: True).of({0: model[1]})
    model[1].register_forward_hook(lambda layer, inputs, output: 2 * output)
    expected = []
    for step in range(4, 7):
        for part in range(2):
            inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(2 * step + part))
            before = inputs @ model[0].weight.T + model[0].bias
            model(inputs)
        if step % 2 == 0:
            tau = row_thresholds(before.detach().relu(), 0.25).mean().item()
            expected.append(("cut0", step, pytest.approx(tau, rel=1e-5)))
    model.eval()
    model(inputs)
    found = load.watched(tmp_path)
    assert list(found.columns) == list(Watched._fields) and (found.density == 0.25).all()
    assert list(zip(found.of, found.step, found.threshold, strict=True)) == expected
    assert load.histograms(tmp_path).empty


@pytest.mark.parametrize("feedback", [Residual(), Residual(0.5), NoFeedback()])
def test_of_a_gradient_it_sees_what_the_compressor_takes(tmp_path, feedback) -> None:
    """Each threshold of DCT-DP is the watch's of that step: of gradient and residual together.

    In any bucket layout.
    """
    compressor = DCTDP(lifespan=1)
    worker = reduction(compressor, feedback, density=0.05)
    watch = Watch(every=2, densities=[0.05], gradients=["weight", "bias"])
    watching = Watching(watch, tmp_path, rank=3, accumulate=1, first=0, looks=lambda: True)
    worker.look = watching.gradients
    expected = {}
    for step in range(5):
        exchange(worker, step, LAYOUTS[min(step, 1)], grads(step))
        for name in ("weight", "bias") if step % 2 == 0 else ():
            expected[step, name] = float(compressor.thresholds[name].value)
    text = (tmp_path / "watched.csv").read_text().splitlines()
    rows = [dict(zip(Watched._fields, line.split(","), strict=True)) for line in text]
    assert {(int(row["step"]), row["of"]): float(row["threshold"]) for row in rows} == expected
    assert {row["rank"] for row in rows} == {"3"}


def test_a_fitted_threshold_is_the_one_that_dct_mp_s_laplace_lets_through(tmp_path) -> None:
    """Of all entries of a batch, not row by row."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    watch = Watch(every=1, densities=[0.5, 0.1])
    Watching(watch, tmp_path, 0, accumulate=1, first=0, looks=lambda: True).of({0: model[0]})
    inputs = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    activations = inputs @ model[0].weight.T.detach() + model[0].bias.detach()
    model(inputs)
    found = load.watched(tmp_path)
    assert found.density.tolist() == [0.5, 0.1]
    for row in found.itertuples():
        wanted = ThresholdTopK("laplace").threshold(activations.flatten(), row.density)
        assert row.laplace == pytest.approx(wanted, rel=1e-5)
    scheme = DCTMP(0.1, "laplace")
    scheme.mask(activations, training=True)
    assert scheme.average == pytest.approx(found.laplace[1], rel=1e-5)


def test_a_watched_run_is_the_run_that_was_not_watched(tmp_path) -> None:
    alone = simulated(tmp_path / "alone", *RUN, *DETERMINED)
    watched = simulated(tmp_path / "watched", *RUN, *WATCH, *DETERMINED)
    for name, value in weights(watched).items():
        assert torch.equal(value, weights(alone)[name]), name
    assert not (alone / "watched.csv").exists()
    real = over_gloo(tmp_path / "real", *RUN, *WATCH)
    assert (real / "watched.csv").read_text() == (watched / "watched.csv").read_text()
    seen = load.watched(watched)
    assert seen.groupby(["of", "density"]).step.apply(list).tolist() == [[0, 2, 4]] * 4
    pairs = seen.pivot_table(index=["of", "step"], columns="density", values="threshold")
    assert (pairs[0.1] > pairs[0.5]).all()


def test_several_workers_each_look_at_what_they_compute_themselves(tmp_path) -> None:
    """In virtual time they share a model."""
    asked = (*RUN, *WATCH, "workers=3", "batch_size=8")
    ours, theirs = (
        simulated(tmp_path / "ours", *asked, *DETERMINED),
        over_gloo(tmp_path / "theirs", *asked),
    )
    mine, real = (sorted((run / "watched.csv").read_text().splitlines()) for run in (ours, theirs))
    assert mine == real and load.watched(ours)["rank"].nunique() == 3


def test_the_stages_of_a_pipeline_see_what_one_worker_does(tmp_path) -> None:
    """Of the parts of a model each its own; rank = pipeline x stages + stage."""
    asked = (*RUN, *WATCH, "accumulate=2", "watch.gradients=[1.weight,3.weight]", *DETERMINED)
    whole = simulated(tmp_path / "whole", *asked, "workers=2")
    stages = simulated(tmp_path / "stages", *asked, "parallel=pipeline", "workers=4")
    for table in (load.watched, load.histograms):
        seen, parts = table(whole), table(stages)
        assert parts["rank"].nunique() == (4 if table is load.watched else 2)
        parts["rank"] //= 2
        rows = [each.sort_values([*each.columns]).values.tolist() for each in (parts, seen)]
        assert rows[0] == rows[1] != []


def test_a_histogram_has_every_activation_once(tmp_path) -> None:
    bins = load.histograms(simulated(tmp_path / "run", *RUN, *WATCH, *DETERMINED))
    assert list(bins.columns) == list(Bin._fields)
    assert len(bins) == BINS and set(bins.step) == {3} and set(bins.of) == {"cut0"}
    assert bins.entries.sum() == 16 * 40
    assert bins.high[:-1].tolist() == pytest.approx(bins.low[1:].tolist())
    middle = ((bins.low + bins.high) / 2 * bins.entries).sum() / bins.entries.sum()
    width = bins.high[0] - bins.low[0]
    assert middle == pytest.approx(bins["mean"][0], abs=width) and math.isfinite(bins.deviation[0])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("+watch.gradients=[9.weight]",), r"watch: gradients must be of 1\.weight, .* got 9\.wei"),
        (("+watch.every=0",), "watch: every must be a whole number >= 1, got 0"),
        (("+watch.densities=[0]",), r"watch: density must be a number in \(0, 1\], got 0"),
        (("parallel=data", "activations=dense", "emulation.compute=replay"),
         "watch must be null with emulation.compute=replay"),
    ],
)  # fmt: skip
def test_what_cannot_be_watched_is_refused(overrides, message) -> None:
    with pytest.raises(BadSetting, match=message):
        settings_of(*RUN, "+watch._target_=harness.config.watch.Watch", *overrides)
