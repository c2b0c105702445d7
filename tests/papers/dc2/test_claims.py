"""DC2's claims: runs that do what the paper says meet them, others do not."""

from itertools import product
from typing import Any

import pytest

from harness.records.run_directory import LinkSample
from harness.reporting import claims
from harness.reporting.analysis import load, metrics
from harness.reporting.claims.base import FAILS, HOLDS, NOT_DECIDABLE, Claim
from papers.dc2 import claims as dc2
from tests import records_by_hand as by_hand
from tests.claims.tables import copied, sides, table
from tests.claims.tables import row as row_of

# speed-up by method as the text has it, times allreduce
VGG16 = {"allreduce": 1.0, dc2.MODERATE: 6.1, dc2.EXTREME: 20.0, dc2.RANDOM_EXTREME: 0.0}
VGG16 |= {"dc2_da2": 15.2, "dc2_da3": 8.0, "dc2_da4": 9.0, "dc2_da5": 10.0}
VGG16 |= {method: 14.0 for method in dc2.RANDOM_DC2}
ACCURACY = {dc2.EXTREME: 0.82, dc2.RANDOM_EXTREME: 0.1}


def row(experiment: str, method: str, seed: int = 0, **known: Any) -> dict[str, Any]:
    """A run with as many workers as the paper's, on a workload that has controls."""
    told = {"workers": 8, "model": "mlp_as_vgg16_cifar", "dataset": "glyphs"}
    return row_of(experiment, method, seed, **(told | known))


def controls(**known: Any) -> list[dict[str, Any]]:
    """Runs that lose what they have to."""
    told = {"conditions": {"of": "controls"}, **known}
    failing = [row("dc2_table2", method, final=0.3, **told) for method in dc2.LOSING]
    return [row("dc2_table2", "allreduce", **told), *failing]


def judged(*rows: dict[str, Any]) -> list[Claim]:
    return claims.judge(table(*rows, *controls(), copies=3), "dc2")


def vgg16(**other: float) -> list[dict]:
    return [
        row(dc2.VGG16, dc2.NO_EF.get(method, method), seed, final=ACCURACY.get(method, 0.968),
            time_s=100.0 / (speed or 1),
            throughput=50.0 * (30.0 if method == dc2.EXTREME else speed))
        for method, speed in (VGG16 | other).items()
        for seed in (0, 1)
    ]  # fmt: skip


def verdicts(rows: list[dict], id: str) -> dict[str, str]:
    found = judged(*rows)
    return {claim.text: claim.verdict for claim in found if claim.id.startswith(id)}


def test_figure_4_of_vgg16_holds_for_runs_as_the_text_has_them():
    told = {t: v for t, v in verdicts(vgg16(), "dc2_fig4").items() if t.startswith("VGG16")}
    assert len(told) == 8 and set(told.values()) == {HOLDS}


@pytest.mark.parametrize(("other", "text"), [
    ({"dc2_da2": 7.0}, "VGG16: DA2 has the highest speed-up of DC2's controllers"),
    ({"dc2_da2": 60.0}, "VGG16: DC2 has up to 2.5 times the speed-up of uniform 0.1"),
    ({"dc2_da2": 2.0, "dc2_da3": 2.0, "dc2_da4": 2.0, "dc2_da5": 2.0},
     "VGG16: DC2 with Random-k is comparable to DC2 with Top-k"),
    ({"dc2_da2": 29.0}, "VGG16: uniform 0.001 has about twice DA2's throughput"),
])  # fmt: skip
def test_a_claim_falls_with_its_numbers(other, text):
    assert verdicts(vgg16(**other), "dc2_fig4")[text] == FAILS
    assert verdicts(vgg16(), "dc2_fig4")[text] == HOLDS


def test_what_breaks_is_far_below_allreduce_and_divergence_counts_as_nothing():
    rows = vgg16()
    text = "VGG16: Random-k-0.001 does not train (speed-up 0)"
    for each in rows:
        if each["method"] == dc2.NO_EF[dc2.RANDOM_EXTREME]:
            each["final"] = 0.9
    assert verdicts(rows, "dc2_fig4d")[text] == FAILS
    for each in rows:
        if each["method"] == dc2.NO_EF[dc2.RANDOM_EXTREME]:
            each["diverged"] = True
    assert verdicts(rows, "dc2_fig4d")[text] == HOLDS
    lost = "ResNet-20: Top-k-0.001 ends far below no compression (67 %, 26.75 points)"
    nothing = [row(dc2.RESNET20, dc2.NO_EF[dc2.EXTREME], diverged=True, final=float("nan")),
               row(dc2.RESNET20, "allreduce")]  # fmt: skip
    assert verdicts(nothing, "dc2_fig4a")[lost] == HOLDS
    told = verdicts(rows, "dc2_no_ef")
    broken = "VGG16: without error feedback Random-k-0.001 breaks, Top-k-0.001 does not"
    assert told[broken] == HOLDS


def test_quality_counts_only_where_controls_fail():
    text = "VGG16: DC2 has up to 2.5 times the speed-up of uniform 0.1"
    whole = claims.judge(table(*vgg16(), copies=3), "dc2")
    (claim,) = (claim for claim in whole if claim.text == text)
    assert claim.verdict == NOT_DECIDABLE and "no runs of dc2_table2" in claim.reason


def test_a_workload_is_won_against_each_uniform_density_apart():
    told = verdicts(vgg16(), "dc2_dynamic")
    assert told["VGG16: a DC2 method beats no compression and uniform 0.1"] == HOLDS
    assert told["VGG16: a DC2 method beats uniform 0.001"] == FAILS
    assert told["LSTM: a DC2 method beats uniform 0.001"] == NOT_DECIDABLE


def test_a_factor_that_is_not_met_is_told_with_what_communication_allows():
    rows = vgg16(dc2_da2=2.0, dc2_da5=2.0, dc2_da4=2.0, dc2_da3=2.0)
    found = judged(*rows)
    (claim,) = (c for c in found if "2.5 times the speed-up" in c.text)
    assert claim.verdict == FAILS and claim.reason.startswith("the other way than published: ")
    assert f"a step of {dc2.NO_EF[dc2.MODERATE]} is 2 computations long" in claim.reason
    assert "2 times its throughput and 1 times its quality" in claim.reason


def test_a_rival_that_did_not_train_leaves_no_factor():
    rows = [
        row(dc2.RESNET20, name) for name in dc2.names(dc2.RESNET20, *dc2.RANDOM_DC2, "allreduce")
    ]
    lost = dc2.NO_EF[dc2.RANDOM_MODERATE]
    rows += [row(dc2.RESNET20, lost, diverged=True, final=float("nan"))]
    found = judged(*rows)
    (claim,) = (c for c in found if "6.7 times" in c.text)
    assert claim.verdict == FAILS and f"{lost} did not train" in claim.reason


@pytest.mark.parametrize(
    ("densities", "verdict"),
    [((0.03, 0.14, 0.07, 0.07), HOLDS), ((0.03, 0.14, 0.07, 0.2), FAILS)],
)
def test_mean_densities_are_held_against_the_published(densities, verdict):
    rows = [
        row(dc2.LONG, f"{name}_fed", density=density, compressor="sampled_topk", controller=name)
        for name, density in zip(dc2.DC2, densities, strict=True)
    ]
    told = verdicts(rows, "dc2_fig9cd")
    assert set(told.values()) == {verdict} and len(told) == 2


@pytest.mark.parametrize(("gain", "verdict"), [(2.4, HOLDS), (1.3, FAILS), (4.0, FAILS)])
def test_what_is_replayed_is_held_against_factors_and_densities(gain, verdict):
    rows = []
    for scatter, model in product(dc2.SCATTERS, ("vgg16_cifar", "resnet50", "lstm_ptb")):
        told = {"conditions": {"model.name": model, "network.exchange_noise": scatter}}
        told |= {"final": float("nan"), "loss_left": float("nan")}
        rows += [row(dc2.FACTORS, dc2.REPLAYED_MODERATE, density=0.1, **told)]
        rows += [row(dc2.FACTORS, "allreduce", throughput=30.0, **told)]
        of_da2 = dict.fromkeys(dc2.REPLAYED, 60.0) | {dc2.REPLAYED[0]: 50.0 * gain}
        densities = zip(dc2.REPLAYED, dc2.MEAN_DENSITIES.values(), strict=True)
        rows += [row(dc2.FACTORS, m, density=k, throughput=of_da2[m], **told) for m, k in densities]
    told = verdicts(rows, "dc2_factors")
    assert len(told) == 8
    assert {v for text, v in told.items() if "uniform 0.1" in text} == {verdict}
    assert {v for text, v in told.items() if "mean densities" in text} == {HOLDS}


def test_random_k_that_stays_below_is_told():
    fed = [{"compressor": "randomk", "controller": name} for name in dc2.DC2]
    rows = [row(dc2.LONG, f"{each['controller']}_fed", final=0.9, **each) for each in fed]
    rows += [row(dc2.LONG, "allreduce", final=0.9)]
    rows += [row(dc2.LONG, dc2.RANDOM_MODERATE, final=0.1)]
    (claim,) = (c for c in judged(*rows) if c.text.startswith("Random-k: DC2"))
    assert claim.verdict == FAILS
    assert f"by: {dc2.RANDOM_MODERATE};" in claim.reason


def test_perplexity_is_better_when_it_is_lower():
    def rows(sparse: float) -> list[dict]:
        methods = ("allreduce", *dc2.UNIFORM, *dc2.DC2)
        finals = [100.0, *[sparse] * 6]
        return [row(dc2.PTB_STATIC, method, metric="perplexity", final=final)
                for method, final in zip(methods, finals, strict=True)]  # fmt: skip

    text = "LSTM, static: perplexity is the same or slightly better"
    assert verdicts(rows(60.0), "dc2_fig8c")[text] == HOLDS
    assert verdicts(rows(140.0), "dc2_fig8c")[text] == FAILS


def test_only_a_method_that_reached_the_target_is_first():
    times = dict.fromkeys(("allreduce", *dc2.UNIFORM, *dc2.DC2), 80.0)
    times |= {"dc2_da2": 50.0, dc2.EXTREME: 30.0}
    rows = [row(dc2.PTB, method, time_to_target_s=time) for method, time in times.items()]
    text = "LSTM, dynamic: DA2 is the first to reach the target"
    assert verdicts(rows, "dc2_fig6c")[text] == FAILS
    missed = [each | {"reached": each["method"] != dc2.EXTREME} for each in rows]
    assert verdicts(missed, "dc2_fig6c")[text] == HOLDS


def test_qualities_need_the_papers_scale():
    names = {"resnet20": 0.935, "vgg16_cifar": 0.96, "resnet50": 0.73, "lstm_ptb": 104.0}
    rows = [
        row("dc2_table2", method, final=q * share, model=m, dataset=dc2.WORKLOADS[m], **known)
        for m, q in names.items()
        for known in [{"conditions": {"model.name": m}, "scale": "paper"}]
        for method, share in ({"allreduce": 1.0} | dict.fromkeys(dc2.LOSING, 0.3)).items()
    ]
    fine = judged(*rows)
    table2 = [each for each in fine if each.id == "dc2_table2" and each.scale == "paper"]
    assert [claim.verdict for claim in table2] == [HOLDS]
    small = [each | {"scale": "laptop"} for each in rows]
    (claim,) = (claim for claim in judged(*small) if claim.id == "dc2_table2")
    assert claim.verdict == NOT_DECIDABLE and "needs scale=paper" in claim.reason


def test_over_time_controllers_are_held_against_the_rate(tmp_path):
    # The rate alternates every 10 s; each density follows it, DA4's the other way round.
    follows = {"dc2_da2": 0.05, "dc2_da3": 0.2, "dc2_da4": -0.02, "dc2_da5": 0.04}
    high = [(second // 10) % 2 for second in range(100)]
    links = [LinkSample(float(s), "up0", 5.0 + 5 * h, 9.0, 0, 0, 0) for s, h in enumerate(high)]
    for method, swing in follows.items():
        rows = [
            by_hand.step(n, rank, time_s=float(n + 1), density=0.1 + swing * high[min(n + 1, 99)])
            for n in range(100)
            for rank in range(2)
        ]
        config = by_hand.config(method, experiment=dc2.IMAGENET, workers=8)
        by_hand.run(tmp_path / method, config, rows, links=links)
    found = claims.judge(copied(metrics.table(load.runs(tmp_path))), "dc2")
    told = {claim.text: claim for claim in found if claim.id == "dc2_fig10"}
    tracks = told["dynamic: controllers send more where rates are higher"]
    assert tracks.verdict == FAILS and tracks.reason.startswith("not dc2_da4:")
    assert "dc2_da2 1 (1 to 1)," in tracks.measured and "dc2_da4 -1 (" in tracks.measured
    assert told["dynamic: DA3 overshoots and oscillates"].verdict == HOLDS


@pytest.mark.parametrize(("jump", "verdict"), [(0.3, HOLDS), (0.01, FAILS)])
def test_da1_is_held_against_the_others_though_it_ran_in_an_experiment_of_its_own(
    tmp_path, jump, verdict
):
    for method in ("dc2_da1", *dc2.DC2):
        step = jump if method == "dc2_da1" else 0.02
        rows = [by_hand.step(n, rank, density=0.1 + step * (n % 2)) for n in range(20)
                for rank in (0, 1)]  # fmt: skip
        experiment = dc2.WITH_DA1 if method == "dc2_da1" else dc2.IMAGENET
        links = [LinkSample(0.0, "up0", 9.0, 9.0, 0, 0, 0)]
        config = by_hand.config(method, experiment=experiment, workers=8)
        by_hand.run(tmp_path / method, config, rows, links=links)
    found = claims.judge(copied(metrics.table(load.runs(tmp_path))), "dc2")
    (claim,) = (each for each in found if each.text.startswith("DA1 jumps"))
    assert claim.verdict == verdict and f"dc2_da1 {jump:g}" in claim.measured
    assert len(claim.runs) == 15


def test_goodput_swings_where_the_network_does(tmp_path):
    links = [LinkSample(0.0, "up0", 9.0, 9.0, 0, 0, 0)]
    for experiment, slow_s in ((dc2.IMAGENET_STATIC, 0.5), (dc2.IMAGENET, 2.0)):
        ends, now = [], 0.0
        for n in range(200):
            now += slow_s if (n // 20) % 2 else 0.5
            ends.append(now)
        rows = [by_hand.step(n, rank, time_s=t, received_bytes=100_000) for n, t in enumerate(ends)
                for rank in range(2)]  # fmt: skip
        config = by_hand.config("allreduce", experiment=experiment, workers=8)
        by_hand.run(tmp_path / experiment, config, rows, links=links)
    found = claims.judge(copied(metrics.table(load.runs(tmp_path))), "dc2")
    told = {c.text: c for c in found if c.id == "dc2_fig3"}
    assert {claim.verdict for claim in told.values()} == {HOLDS}
    flat = told["static network: goodput is flat and below the rate"]
    assert "1.6 (1.6 to 1.6) of 9 Mbit/s" in flat.measured


def test_dc2_numbers_of_the_text():
    speeds = {"allreduce": 1.0, dc2.MODERATE: 2.0, dc2.EXTREME: 10.0, dc2.RANDOM_EXTREME: 1.0}
    speeds |= {method: 4.0 for method in (*dc2.DC2, *dc2.RANDOM_DC2)} | {"dc2_da2": 5.0}
    finals = {dc2.EXTREME: 0.82, "allreduce": 0.9}
    rows = [
        row_of(dc2.VGG16, dc2.NO_EF.get(m, m), seed, time_s=100 / s, throughput=s,
               final=finals.get(m, 0.9))
        for m, s in speeds.items()
        for seed in (0, 1)
    ]  # fmt: skip
    rows += [row_of(dc2.LONG, "fed", density=0.2, compressor="sampled_topk", controller="dc2_da3")]
    found = sides(rows).set_index(["id", "method", "metric"])
    told = found.loc["dc2_fig4d", "DC2 vs uniform 0.1", "normalized_training_speedup_ratio_max"]
    assert (told.published, told.measured, told.low, told.high) == pytest.approx(
        (2.5, 2.5, 2.5, 2.5)
    )
    told = found.loc["dc2_fig4d", "Top-k-0.001", "accuracy_drop_vs_baseline"]
    assert (told.published, told.measured, told.comparable) == (14.8, pytest.approx(8), False)
    told = found.loc["dc2_fig4e", "ratio 0.001 vs DA2", "throughput_ratio_approx"]
    assert (told.published, told.measured) == (2, 2)
    told = found.loc["dc2_fig9cd", "DA3", "mean_compression_ratio"]
    assert (told.published, told.measured, told.comparable) == (0.145, 0.2, True)
    assert not any(name.startswith("dc2_fig5") for name in found.index.get_level_values(0))
