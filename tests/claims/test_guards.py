"""Each guard, fed rows that it has to find and rows that it has to let pass."""

from functools import partial
from math import inf, nan

import pytest

from harness.config.parts import choices
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims import guards, papers, rules
from harness.reporting.claims.base import (
    BY_CONSTRUCTION,
    FAILS,
    HOLDS,
    NOT_DECIDABLE,
    UNDECIDED,
    Found,
    PaperClaims,
    above,
    all_of,
    below,
    within,
)
from harness.reporting.claims.guards import Controls, Regime
from harness.reporting.claims.lines import counted, lines
from tests.claims.tables import row, table


def pairs(method: str, *values: float, column: str = "throughput", **known) -> list[dict]:
    return [row("runs", method, seed, **{column: v}, **known) for seed, v in enumerate(values)]


def judged(*rows: dict, column: str = "throughput", **says):
    made = PaperClaims("by_hand", workers=4, controls=says.pop("controls", ()))

    def decide(runs):
        found = runs.of("runs").ratio(column, "fast", "slow")
        return Found(above(found), f"{found.mean:.3g}", "slower")

    made.says("fig1", "fast is faster", decide, **says)
    (claim,) = made.judge(table(*rows), "virtual", "laptop")
    return claim


FAST, SLOW = pairs("fast", 9.0, 9.1, 9.2), pairs("slow", 3.0, 3.1, 3.2)


def test_an_interval_decides_and_a_straddling_one_does_not():
    assert judged(*FAST, *SLOW).verdict == HOLDS
    assert judged(*FAST, *SLOW).p < 0.001
    assert judged(*pairs("fast", 1.0, 1.1, 1.0), *SLOW).verdict == FAILS
    assert judged(*pairs("fast", 1.0, 3.3, 9.0), *SLOW).verdict == UNDECIDED


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (FAST[:2] + SLOW[:2], "2 pairs of seeds, needs 3"),
        (FAST + SLOW[:2], "1 of 3 pairs lack throughput"),
        (pairs("fast", 9.0, 9.1, nan) + SLOW, "1 of 3 pairs lack throughput"),
        (pairs("fast", 9.0, 9.1, 9.2, loss_left=0.2) + pairs("slow", 3.0, 3.1, 3.2, loss_left=0.2),
         "fast and slow did identical work"),
    ],
)  # fmt: skip
def test_runs_that_decide_nothing_say_why(rows, reason):
    found = judged(*rows)
    assert found.verdict == NOT_DECIDABLE and reason in found.reason


def test_of_what_is_not_random_one_run_says_all():
    once = [*pairs("fast", 9.0), *pairs("slow", 3.0)]
    replays = [each | {"conditions": dict(guards.CERTAIN)} for each in once]
    assert judged(*replays).verdict == HOLDS and judged(*replays).p != judged(*replays).p
    for kind in ("network.noise", "network.exchange_noise", "network.latency_noise"):
        noisy = [each | {"conditions": guards.CERTAIN | {kind: 0.1}} for each in once]
        assert "1 pair of seeds, needs 3" in judged(*noisy).reason


def test_what_overlaps_otherwise_may_do_the_same():
    alike = {"loss_left": 0.2}
    rows = pairs("fast", 9.0, 9.1, 9.2, overlap="after_backward", **alike)
    assert judged(*rows, *pairs("slow", 3.0, 3.1, 3.2, **alike)).verdict == HOLDS


def test_a_baseline_that_learnt_nothing_tells_no_quality():
    dense = pairs("allreduce", 0.1, 0.1, 0.1, column="final", loss_left=0.99)
    assert "untrained" in guards.untrained(table(*dense))
    assert not guards.untrained(table(*pairs("allreduce", 0.1, loss_left=0.5)))


def test_the_time_of_a_method_that_learnt_nothing_decides_nothing():
    fast = pairs("fast", 1.0, 1.1, 1.2, column="iteration_s", loss_left=0.99)
    slow = pairs("slow", 3.0, 3.1, 3.2, column="iteration_s", loss_left=0.2)
    dense = pairs("allreduce", 3.0, 3.1, 3.2, column="iteration_s", loss_left=0.2, dense=True)
    found = judged(*fast, *slow, *dense, column="iteration_s")
    assert found.verdict == NOT_DECIDABLE and "fast leaves 0.99 of the first loss" in found.reason
    learnt = [each | {"loss_left": 0.3} for each in fast]
    assert judged(*learnt, *slow, *dense, column="iteration_s").verdict == FAILS


def test_a_regime_is_of_what_runs_had():
    rows = pairs("fast", 9.0, 9.1, 9.2, steps=200, density=0.001)
    told = judged(*rows, *SLOW, regime=Regime(workers=8, sends=1)).reason
    assert "4 workers, published with 8" in told and "fast 0.2" in told
    assert judged(*FAST, *SLOW, regime=Regime(workers=4, sends=1)).verdict == HOLDS
    hidden = table(*pairs("allreduce", 1.0, ccr=0.1))
    assert "0.1, not within 0.5 to 9" in Regime(ccr=(0.5, 9)).differs(hidden, hidden)
    steps = int(hidden.steps.min())
    told = Regime(steps=steps + 1).differs(hidden, hidden)
    assert f"{steps:,} steps, published with {steps + 1:,}" in told
    assert not Regime(steps=steps).differs(hidden, hidden)


def test_how_much_is_communicated_is_of_runs_without_compression_that_no_claim_looks_at():
    dense = pairs("allreduce", 1.0, 1.1, 1.2, ccr=2.0, dense=True)
    compared = (*FAST, *SLOW)
    assert judged(*compared, *dense, regime=Regime(ccr=(0.5, 9))).verdict == HOLDS
    assert "is 2, not within 3 to 9" in judged(*compared, *dense, regime=Regime(ccr=(3, 9))).reason
    assert "no run without compression" in judged(*compared, regime=Regime(ccr=(0.5, 9))).reason


def test_inputs_and_arithmetic_are_by_construction():
    assert judged(*FAST, *SLOW, by_construction="calibrated").verdict == BY_CONSTRUCTION
    rows = [each | {"controller": "fixed", "volume_ratio": 0.1} for each in FAST]
    rows += [each | {"controller": "fixed"} for each in SLOW]
    assert "arithmetic" in judged(*rows, column="volume_ratio").reason
    chosen = [each | {"controller": "netsense"} for each in rows]
    assert judged(*chosen, column="volume_ratio").verdict == FAILS


def test_a_method_is_judged_by_what_it_sent():
    at = {"controller": guards.FIXED, "asked_density": 0.005}
    more, less = (pairs("fast", 9.0, 9.1, 9.2, **at | {"density": sent}) for sent in (0.027, 0.004))
    assert "fast sent 0.027 of the entries, not 0.005" in judged(*more, *SLOW).reason
    assert judged(*less, *SLOW).verdict == HOLDS
    chosen = [each | {"controller": "covap"} for each in more]
    assert judged(*chosen, *SLOW).verdict == HOLDS


@pytest.mark.parametrize(("before_s", "verdict"), [(75.0, HOLDS), (35.0, UNDECIDED)])
def test_times_between_evaluations_that_overlap_do_not_decide(before_s, verdict):
    met = {"column": "time_to_target_s"}
    rows = pairs("fast", 80.0, 80.1, 80.2, before_target_s=before_s, **met)
    rows += pairs("slow", 40.0, 40.1, 40.2, before_target_s=0.0, **met)
    found = judged(*rows, column="time_to_target_s")  # above 1: it takes longer
    assert found.verdict == verdict


def control(method: str, *finals: float, **known) -> list[dict]:
    return [row("controls", method, seed, final=x, **known) for seed, x in enumerate(finals)]


GOOD = [*pairs("fast", 9.0, 9.1, 9.2, column="best"), *pairs("slow", 3, 3.1, 3.2, column="best")]
gated = partial(judged, column="best")


def test_a_testbed_has_to_lose_by_what_loses():
    asked = [Controls("convnet", "digits", "controls", ("no_feedback",))]
    dense = control("allreduce", 0.9, 0.91, 0.9)
    bad, fine = control("no_feedback", 0.3, 0.31, 0.3), control("no_feedback", 0.9, 0.9, 0.89)
    assert gated(*GOOD, *dense, *bad, controls=asked).verdict == HOLDS
    assert "no_feedback loses" in gated(*GOOD, *dense, *fine, controls=asked).reason
    late = [each | {"reached": False} for each in dense]
    assert "target" in gated(*GOOD, *late, *bad, controls=asked).reason
    assert "no runs of controls" in gated(*GOOD, controls=asked).reason
    assert judged(*FAST, *SLOW, controls=asked).verdict == HOLDS  # is of no quality


@pytest.mark.parametrize(("loss", "verdict"), [(True, FAILS), (False, NOT_DECIDABLE)])
def test_on_an_insensitive_task_a_measured_loss_decides_and_no_loss_does_not(loss, verdict):
    asked = [Controls("convnet", "digits", "controls", ("no_feedback",))]
    made = PaperClaims("by_hand", workers=4, controls=asked)

    def decide(runs):
        found = runs.of("runs").ratio("final", "fast", "slow")
        return Found(False, f"{found.mean:.3g}", loss=loss)

    made.says("fig1", "fast is as accurate", decide)
    rows = [*pairs("fast", 0.5, 0.51, 0.5, column="final"), *pairs("slow", 0.9, 0.9, 0.89)]
    rows += [*control("allreduce", 0.9, 0.91, 0.9), *control("no_feedback", 0.9, 0.9, 0.89)]
    (claim,) = made.judge(table(*rows), "virtual", "laptop")
    assert claim.verdict == verdict


def test_a_claim_on_a_control_is_not_controlled_by_it():
    asked = [Controls("convnet", "digits", "controls", ("slow",))]
    rows = [*GOOD, *control("allreduce", 0.9, 0.91, 0.9), *control("slow", 0.1, 0.1, 0.11)]
    assert "cannot control a claim on themselves" in gated(*rows, controls=asked).reason


def test_a_claim_is_gated_by_the_controls_of_its_own_workload():
    losing = ("no_feedback",)
    images = Controls("convnet", "digits", "controls", losing)
    words = Controls("lstm", "pydoc", "controls", losing)
    dense, bad = control("allreduce", 0.9, 0.91, 0.9), control("no_feedback", 0.3, 0.31, 0.3)
    others = [
        each | {"model": "lstm", "dataset": "pydoc", "setting": "words", "run_id": f"w{at}"}
        for at, each in enumerate(control("allreduce", 0.9, 0.91, 0.9, reached=False))
    ]
    rows = [*GOOD, *dense, *bad, *others]
    assert gated(*rows, controls=[images, words]).verdict == HOLDS
    assert "no controls" in gated(*rows, controls=[words]).reason
    assert gated(*[each | {"loss_left": nan} for each in rows], controls=[words]).verdict == HOLDS
    of_words = [each | {"model": "lstm", "dataset": "pydoc"} for each in GOOD]
    found = gated(*of_words, *dense, *bad, *others, controls=[images, words])
    assert found.verdict == NOT_DECIDABLE and "does not reach the target" in found.reason


def ratio(mean: float, half: float = 0.01, bound: str = "") -> Ratio:
    return Ratio(mean, nan if bound else mean - half, nan if bound else mean + half, 6, bound)


def test_a_direction_comes_before_a_factor():
    assert rules.meets(ratio(0.923), 1.3) is False
    assert rules.meets(ratio(0.99, 0.05), 1.3) is None
    assert rules.meets(ratio(1.3), 1.3) is True and rules.meets(ratio(2.5), 1.3) is False
    assert rules.meets(ratio(1.1), 0.9) is False and rules.meets(ratio(0.8), 0.9) is True


def test_nan_and_bounds_never_win():
    unknown = Ratio(nan, nan, nan, 0)
    assert above(unknown) is below(unknown) is within(unknown, 0, 2) is None
    assert above(Ratio(inf, nan, nan, 3)) is True
    assert below(ratio(0.5, bound="low")) is None and below(ratio(0.5, bound="high")) is True
    assert above(ratio(2, bound="high")) is None and above(ratio(2, bound="low")) is True
    assert all_of([True, None]) is None and all_of([True, None, False]) is False


def test_own_and_repeated_claims_are_told_and_not_counted():
    made = PaperClaims("by_hand", workers=4)
    for id, says in {"a": {}, "b": {"repeats": "a"}, "c": {"ours": True}}.items():
        made.says(
            id, "it is so", lambda runs: Found(bool(len(runs.of("runs").rows())), "1"), **says
        )
    both = [
        claim for kind in ("packets", "virtual") for claim in made.judge(table(*FAST), kind, "")
    ]
    assert counted(both) == {"holds in virtual time": 1, "holds over packets": 1}
    found = lines(both)
    assert [line.by for line in found] == ["paper", "as a", "ours"]
    assert {(line.packets, line.virtual) for line in found} == {(HOLDS, HOLDS)}


def test_holm_is_over_all_claims_of_a_study():
    made = PaperClaims("by_hand", workers=4)
    for id in ("a", "b", "c"):

        def decide(runs):
            found = runs.of("runs").ratio("throughput", "fast", "slow")
            return Found(above(found), "1")

        made.says(id, "faster", decide)
    six = pairs("fast", *range(10, 16)) + pairs("slow", *range(1, 7))
    found = made.judge(table(*six), "virtual", "")
    (p,) = {claim.p for claim in found}
    assert 0 < p < 0.05 and [claim.p_holm for claim in found] == pytest.approx([3 * p] * 3)


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.name)
def test_controls_are_of_data_that_dataset_takes(paper: PaperClaims) -> None:
    """Else no run is among them, and what they are for is never decided."""
    assert {each.dataset for each in paper.controls} <= set(choices("dataset"))
