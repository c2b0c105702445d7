"""ACP-SGD's claims on accuracy, by runs written by hand."""

from harness.reporting import claims
from harness.reporting.claims.base import FAILS, HOLDS, NOT_DECIDABLE
from papers.acp_sgd import trained
from tests.claims.tables import row, table

FINALS = {
    trained.DENSE: 0.9, trained.POWER: 0.9, trained.ACP: 0.9,
    trained.NO_FEEDBACK: 0.8, trained.NO_REUSE: 0.7, **dict.fromkeys(trained.FORGETS, 0.1),
}  # fmt: skip


def verdicts(id: str, **finals: float) -> set[str]:
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
    assert verdicts("acp_fig6") == verdicts("acp_fig7") == {HOLDS}


def test_a_loss_and_an_ablation_that_loses_nothing_do_not():
    assert verdicts("acp_fig6", acp_sgd=0.7) == {FAILS}
    assert verdicts("acp_fig7", acp_sgd_no_ef=0.9, acp_sgd_no_reuse=0.9) == {FAILS}


def test_where_what_forgets_loses_nothing_no_accuracy_is_judged():
    assert verdicts("acp_fig6", **dict.fromkeys(trained.FORGETS, 0.9)) == {NOT_DECIDABLE}
