"""ACP-SGD's claims, by replays and runs written by hand, and its numbers beside measured ones."""

import pytest

from harness.reporting import claims
from harness.reporting.claims.base import BY_CONSTRUCTION, FAILS, HOLDS, NOT_DECIDABLE
from harness.reporting.claims.guards import CERTAIN
from papers.acp_sgd import claims as acp
from papers.acp_sgd import trained
from tests.claims.tables import row, sides, table
from tests.papers.acp_sgd.test_replays import TABLE3, of_fig9, of_table3

READ = {"model.times.forward_s": 0.08145, "model.times.backward_s": 0.162899}  # of fitted.yaml
STEPS_S = {acp.DENSE: 0.266, acp.ACP: 0.248, acp.PACKED: 0.302, acp.STAR: 0.286}


def verdicts(**steps_s: float) -> list[str]:
    rows = [
        row(
            acp.TIMELINES, method, iteration_s=step_s, compute_s=0.244, exposed_s=step_s - 0.244,
            workers=32, conditions=CERTAIN | READ,
        )
        for method, step_s in (STEPS_S | steps_s).items()
    ]  # fmt: skip
    return [claim.verdict for claim in claims.judge(table(*rows), "acpsgd") if claim.runs]


def test_claims_hold_for_the_papers_steps_and_what_was_read_is_by_construction():
    first, *others = verdicts()
    assert first == BY_CONSTRUCTION and set(others) == {HOLDS} and len(others) == 4


def test_claims_fall_with_other_steps():
    first, *others = verdicts(**{acp.ACP: 0.31, acp.PACKED: 0.25, acp.STAR: 0.25})
    assert first == BY_CONSTRUCTION and set(others) == {FAILS}


def test_steps_of_table_3_come_back_and_what_follows_from_them():
    found = sides(of_table3(), "acp_table3")
    assert len(found) == 8 and found.measured.tolist() == pytest.approx(found.published)
    assert found.comparable.all()
    text = sides(of_table3(), "acp_table3_text").set_index(["model", "method"]).measured
    assert text["BERT-Large", "ACP vs S-SGD"] == pytest.approx(2307 / 245)
    mean = sum(TABLE3["S-SGD"][m] / TABLE3["ACP-SGD"][m] for m in TABLE3["S-SGD"]) / 4
    assert text["mean of 4 models", "ACP vs S-SGD"] == pytest.approx(mean)


def test_what_fusion_gains_is_over_wait_free_backward():
    found = sides(of_fig9(wait_free=80.0, fused=50.0), "acp_fig9").set_index("method").measured
    assert found["ACP TF+WFBP vs WFBP"] == pytest.approx(80.0 / 50.0)


def test_accuracy_of_a_stand_in_is_absolute():
    told = {"model.name": trained.STAND_INS["VGG-16"]}
    found = sides([row(trained.TRAINED, trained.ACP, final=0.93, conditions=told)], "acp_fig6")
    assert found.model.tolist() == ["VGG-16"] and found.measured.tolist() == pytest.approx([93])
    assert not found.comparable.any()


FINALS = {
    trained.DENSE: 0.9, trained.POWER: 0.9, trained.ACP: 0.9,
    trained.NO_FEEDBACK: 0.8, trained.NO_REUSE: 0.7, **dict.fromkeys(trained.FORGETS, 0.1),
}  # fmt: skip


def of_training(id: str, **finals: float) -> set[str]:
    rows = [
        row(
            trained.TRAINED, method, conditions={"model.name": stand_in}, model=stand_in,
            dataset="glyphs", final=final,
        )
        for stand_in in trained.STAND_INS.values()
        for method, final in (FINALS | finals).items()
    ]  # fmt: skip
    found = claims.judge(table(*rows, copies=3), "acpsgd")
    return {claim.verdict for claim in found if claim.id == id and claim.runs}


def test_equal_accuracy_and_worse_ablations_hold():
    assert of_training("acp_fig6") == of_training("acp_fig7") == {HOLDS}


def test_a_loss_and_an_ablation_that_loses_nothing_do_not():
    assert of_training("acp_fig6", acp_sgd=0.7) == {FAILS}
    assert of_training("acp_fig7", acp_sgd_no_ef=0.9, acp_sgd_no_reuse=0.9) == {FAILS}


def test_where_what_forgets_loses_nothing_no_accuracy_is_judged():
    easy = dict.fromkeys(trained.FORGETS, 0.9)
    assert of_training("acp_fig6", **easy) == {NOT_DECIDABLE}
    assert of_training("acp_fig6", acp_sgd=0.7, **easy) == {FAILS}  # a loss counts there, too
    assert of_training("acp_fig7", **easy) == {HOLDS}
