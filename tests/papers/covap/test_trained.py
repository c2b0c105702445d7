"""COVAP's claims on accuracy and time to a target, by runs written by hand."""

from harness.reporting import claims
from harness.reporting.claims.base import FAILS, HOLDS, NOT_DECIDABLE
from papers.covap import trained
from tests.claims.tables import row, table

CCR = {"ResNet-101": 1.5, "VGG-19": 2.7, "Bert": 2.1, "GPT-2": 2.4}
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


def verdicts(id: str, covap_s: float = 50.0, **finals: float) -> set[str]:
    rows = [
        row(
            trained.OF_WORDS if model in trained.OF_TEXT else trained.TRAINED,
            method, conditions={"model.name": stand_in}, model=stand_in,
            dataset=trained.OF_TEXT.get(model, "glyphs"), ccr=CCR[model], workers=8,
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
    assert verdicts(OF_TIME) == verdicts(OF_ACCURACY) == {HOLDS}


def test_who_is_later_or_worse_does_not():
    assert verdicts(OF_TIME, covap_s=90.0) == {FAILS}
    assert verdicts(OF_ACCURACY, covap=0.45, **{trained.SHORT: 0.45}) == {FAILS}


def test_where_what_forgets_loses_nothing_no_accuracy_is_judged():
    assert verdicts(OF_ACCURACY, **dict.fromkeys(trained.FORGETS, 0.9)) == {NOT_DECIDABLE}


def test_a_scheduler_over_few_steps_is_judged_by_itself():
    assert verdicts(OF_ACCURACY, **{trained.SHORT: 0.5}) == {HOLDS, FAILS}
