"""A workload decides where all its controls are as they should be, and says which one is not."""

import pytest

from harness.config import sweep
from harness.reporting.claims.base import FAILS, HOLDS, NOT_DECIDABLE, UNDECIDED
from papers.controls import claims
from papers.controls.claims import PAPER, WORKLOADS
from tests.claims.tables import row, table

VGG = WORKLOADS["glyphs_vgg"]
OF_VGG = {"model._target_": f"harness.workloads.models.{VGG.model}"}
OF_VGG |= {"dataset._target_": f"harness.workloads.data.{VGG.data}"}


def runs(method: str, *finals: float, experiment: str = "controls", **known) -> list[dict]:
    known = {"conditions": OF_VGG, "target": 0.65, "controller": "fixed"} | known
    return [row(experiment, method, seed, final=x, **known) for seed, x in enumerate(finals)]


DENSE = runs("allreduce", 0.72, 0.73, 0.72)
LOST = runs(claims.RARE, 0.4, 0.41, 0.4), runs(claims.FORGETFUL, 0.1, 0.11, 0.1)
SKETCH = runs(claims.SKETCH, 0.2, 0.21, 0.2, experiment="controls_cut")


def judged(*rows: dict):
    """Verdicts on gradients and on cuts of one workload."""
    return [c for c in PAPER.judge(table(*rows), "virtual", "") if c.id == "glyphs_vgg"]


def test_a_workload_on_which_all_that_should_fail_does_decides():
    gradients, cuts = judged(*DENSE, *LOST[0], *LOST[1], *SKETCH)
    assert (gradients.verdict, cuts.verdict) == (HOLDS, HOLDS)
    assert "topk_0.001 0.403, loses 0.442" in gradients.measured


@pytest.mark.parametrize(("changed", "verdict", "reason"), [
    (LOST[0] + runs(claims.FORGETFUL, 0.71, 0.71, 0.72), FAILS, "randomk_0.1_no_ef loses 0.01"),
    (LOST[0] + runs(claims.FORGETFUL, 0.1, 0.7, 0.7), UNDECIDED, "randomk_0.1_no_ef loses"),
    (LOST[0] + LOST[1][:2], NOT_DECIDABLE, "2 pairs of seeds"),
    (LOST[0], NOT_DECIDABLE, "no runs of randomk_0.1_no_ef in controls"),
])  # fmt: skip
def test_a_control_that_is_not_as_it_should_be_is_named(changed, verdict, reason):
    found = judged(*DENSE, *changed)[0]
    assert found.verdict == verdict and reason in found.reason


def test_no_compression_has_to_reach_the_target_in_every_run():
    late = [each | {"reached": seed > 0} for seed, each in enumerate(DENSE)]
    gradients, cuts = judged(*late, *LOST[0], *LOST[1], *SKETCH)
    assert gradients.verdict == cuts.verdict == FAILS
    assert gradients.reason == "testbed insensitive: 2 of 3 dense runs reach the target"


def test_a_diverged_run_has_lost_everything():
    broken = runs(claims.RARE, *[0.72] * 3, diverged=True)
    assert judged(*DENSE, *broken, *LOST[1])[0].verdict == HOLDS


def test_every_workload_that_has_controls_has_claims_and_a_target():
    """And the claims find the runs: by the classes that the configuration has."""
    with sweep.hydra():
        cut = sum(each.is_cut for each in WORKLOADS.values())
        for experiment, count in (("controls", len(WORKLOADS)), ("controls_cut", cut)):
            found = [sweep.load(each) for each in sweep.choices([f"+experiment={experiment}"])]
            classes = {(each.model._target_, each.dataset._target_) for each in found}
            assert classes <= {told(each) for each in WORKLOADS.values()}
            assert len(classes) == count
            assert all(each.target.value is not None for each in found)


def told(workload: claims.Workload) -> tuple[str, str]:
    prefix = "harness.workloads"
    return f"{prefix}.models.{workload.model}", f"{prefix}.data.{workload.data}"
