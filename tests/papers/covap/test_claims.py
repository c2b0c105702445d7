"""COVAP's claims on its timelines, by replays written by hand."""

from harness.reporting import claims
from harness.reporting.claims.base import BY_CONSTRUCTION, FAILS, HOLDS
from harness.reporting.claims.guards import CERTAIN
from papers.covap import claims as covap
from tests.claims.tables import row, table

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
