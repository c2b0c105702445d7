"""ACP-SGD's claims on its timelines, by replays written by hand."""

from harness.reporting import claims
from harness.reporting.claims.base import BY_CONSTRUCTION, FAILS, HOLDS
from harness.reporting.claims.guards import CERTAIN
from papers.acp_sgd import claims as acp
from tests.claims.tables import row, table

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
