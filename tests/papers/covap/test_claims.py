"""COVAP's claims, by replays and runs written by hand, and its numbers beside measured ones."""

import pytest

from harness.reporting import claims
from harness.reporting.claims.base import BY_CONSTRUCTION, FAILS, HOLDS, NOT_DECIDABLE
from harness.reporting.claims.guards import CERTAIN
from papers.covap import claims as covap
from papers.covap import replays, trained
from tests.claims.tables import row, sides, table
from tests.papers.covap.test_replays import BACKWARD_S, CCR, COMPUTE_S, of_fig7, of_table1, ran

READ = {  # papers/covap/fitted.yaml
    "network.efficiency": 0.36648,
    "network.alpha_s": 2.4563e-5,
    "model.times.forward_s": 0.055,
    "model.times.backward_s": 0.135,
}
STEPS_S = {covap.SERIAL: 0.47, covap.DENSE: 0.335, covap.POWER: 0.272, covap.COVAP: 0.196}


def verdicts(**steps_s: float) -> dict[str, str]:
    """By the words of each claim, where a step of a method takes so long, of 0.19 computed."""
    rows = [
        row(
            covap.TIMELINES, method, iteration_s=step_s, throughput=1 / step_s, compute_s=0.19,
            exposed_s=step_s - 0.19, ccr=0.28 / 0.19, workers=64, conditions=CERTAIN | READ,
            overlap="after_backward" if method.endswith("after_backward") else "per_bucket",
        )
        for method, step_s in {**dict.fromkeys(covap.OTHERS, 0.7), **STEPS_S, **steps_s}.items()
    ]  # fmt: skip
    found = claims.judge(table(*rows), "covap")
    return {claim.text: claim.verdict for claim in found if claim.runs}


def test_claims_hold_for_the_papers_steps_and_what_was_read_is_by_construction():
    found = verdicts()
    assert found.pop("ResNet-101: communication takes 2.1 times backward") == BY_CONSTRUCTION
    assert len(found) == 3 and set(found.values()) == {HOLDS}


def test_claims_fall_with_other_steps():
    found = verdicts(**{covap.COVAP: 0.3, covap.POWER: 0.2, covap.SERIAL: 0.3})
    assert [verdict for verdict in found.values()].count(FAILS) == 3


def test_times_of_table_1_and_what_follows_from_them():
    found = sides(of_table1({"vgg19": 1.25}), "covap_table1").set_index("metric").measured
    assert found["T_comp"] == pytest.approx(1e3 * BACKWARD_S)
    assert found["T_before"] == pytest.approx(1e3 * (COMPUTE_S - BACKWARD_S))
    assert found["T_comm"] == pytest.approx(1e3 * CCR["vgg19"] * BACKWARD_S)
    assert found["S_ovlp"] == pytest.approx(1.25)


def test_speed_ups_of_table_7_are_64_times_the_share_of_linear():
    found = sides(of_fig7(covap_s=0.32), "covap_table7")
    assert set(found.metric) == {"speedup_vs_1gpu"} and found.comparable.all()
    ours = found[found.method == "COVAP"]
    assert len(ours) == 2 and ours.measured.tolist() == pytest.approx([64 * COMPUTE_S / 0.32] * 2)


def test_what_is_missing_of_linear_is_told_in_percent():
    rows = [
        ran("covap_fig11", "resnet101", method, step_s)
        for method, step_s in ((replays.covap_of("resnet101"), 0.3), (replays.POWER, 0.4))
    ]
    found = sides(rows, "covap_fig11a").set_index("method").measured
    assert found["COVAP"] == pytest.approx(0) and found["PowerSGD"] == pytest.approx(25)


def test_accuracy_of_a_stand_in_is_absolute():
    told = {"model.name": trained.STAND_INS["ResNet-101"]}
    found = sides([row(trained.TRAINED, trained.COVAP, final=0.5, conditions=told)], "covap_table7")
    assert found.method.tolist() == ["COVAP"] and found.measured.tolist() == pytest.approx([50])
    assert not found.comparable.any()


CCRS = {"ResNet-101": 1.5, "VGG-19": 2.7, "Bert": 2.1, "GPT-2": 2.4}
FINALS = {
    trained.DENSE: 0.9, trained.COVAP: 0.9, trained.SHORT: 0.9, trained.PLAIN: 0.5,
    trained.WITHOUT: 0.8,
    **dict.fromkeys(trained.RIVALS[1:], 0.85), **dict.fromkeys(trained.FORGETS, 0.1),
}  # fmt: skip
OF_TIME, OF_ACCURACY = "covap_fig6", "covap_table7"


def of_metric(model: str, final: float) -> dict:
    """The same quality: an accuracy, or a perplexity whose inverse it is."""
    if model == trained.PERPLEXITY:
        return {"metric": "perplexity", "final": 1 / final}
    return {"final": final}


def of_training(id: str, covap_s: float = 50.0, **finals: float) -> set[str]:
    rows = [
        row(
            trained.OF_WORDS if model in trained.OF_TEXT else trained.TRAINED,
            method, conditions={"model.name": stand_in}, model=stand_in,
            dataset=trained.OF_TEXT.get(model, "glyphs"), ccr=CCRS[model], workers=8,
            **of_metric(model, final),
            time_to_target_s=covap_s if method == trained.COVAP else 80.0,
        )
        for model, stand_in in trained.STAND_INS.items()
        for method, final in (FINALS | finals).items()
    ]  # fmt: skip
    found = claims.judge(table(*rows, copies=3), "covap")
    models = {claim.text.partition(":")[0] for claim in found if claim.id == id and claim.runs}
    assert models == set(trained.STAND_INS)
    return {claim.verdict for claim in found if claim.id == id and claim.runs}


def test_who_is_first_and_as_accurate_holds():
    assert of_training(OF_TIME) == of_training(OF_ACCURACY) == {HOLDS}


def test_who_is_later_or_worse_does_not():
    assert of_training(OF_TIME, covap_s=90.0) == {FAILS}
    assert of_training(OF_ACCURACY, covap=0.45, **{trained.SHORT: 0.45}) == {FAILS}


def test_where_what_forgets_loses_nothing_no_accuracy_is_judged():
    easy = dict.fromkeys((*trained.FORGETS, trained.PLAIN, trained.WITHOUT), 0.9)
    assert {NOT_DECIDABLE} == of_training(OF_ACCURACY, **easy) == of_training(OF_TIME, **easy)
    worse = easy | {"covap": 0.45, trained.SHORT: 0.45}  # a loss counts there, too
    assert of_training(OF_ACCURACY, **worse) == {FAILS}
    assert of_training(OF_TIME, covap_s=90.0, **easy) == {FAILS}


def test_a_scheduler_over_few_steps_is_judged_by_itself():
    assert of_training(OF_ACCURACY, **{trained.SHORT: 0.5}) == {HOLDS, FAILS}
