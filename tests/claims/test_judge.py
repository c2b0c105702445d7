"""How claims are judged: verdicts, missing runs, kinds of runs apart."""

import pandas as pd
import pytest

from harness.reporting import claims
from harness.reporting.claims.base import (
    FAILS,
    HOLDS,
    NOT_DECIDABLE,
    UNDECIDED,
    Found,
    NotDecidable,
    PaperClaims,
)
from harness.workloads.form import Form, unlike
from tests.claims.tables import row, table

METHODS = {"allreduce": 50.0, "topk_0.1": 60.0, "topk_0.001": 100.0}


def paper(decide) -> PaperClaims:
    made = PaperClaims("by_hand", workers=8)
    made.says("by_hand_fig1", "it is so", decide)
    return made


def sweep(experiment: str = "sweep", **known) -> list[dict]:
    return [
        row(experiment, method, seed, throughput=speed + seed, **known)
        for method, speed in METHODS.items()
        for seed in (0, 1, 2)
    ]


def test_a_verdict_has_its_numbers_and_the_runs_that_were_looked_at():
    def decide(runs):
        found = runs.of("sweep").ratio("throughput", "topk_0.1", "allreduce")
        return Found(found.mean > 1, f"{found.mean:.4g}", "slower")

    (claim,) = paper(decide).judge(table(*sweep()), "packets", "laptop")
    assert (claim.verdict, claim.measured, claim.reason) == (HOLDS, "1.196", "")
    assert len(claim.runs) == 6 and not any("0.001" in run for run in claim.runs)
    assert (claim.network, claim.scale) == ("packets", "laptop")


def test_only_a_claim_that_does_not_hold_has_a_reason():
    asked = paper(lambda runs: Found(bool(runs.of("sweep").rows().empty), "1", "slower"))
    (claim,) = asked.judge(table(*sweep()), "", "")
    assert (claim.verdict, claim.reason) == (FAILS, "slower")


@pytest.mark.parametrize(("decide", "reason"), [
    (lambda runs: runs.of("other"), "no runs of other"),
    (lambda runs: runs.of("sweep", workers=8.0), "no runs of sweep, workers 8.0"),
    (lambda runs: runs.of("sweep").mean("final", "pace"), "no runs of pace in sweep"),
])  # fmt: skip
def test_missing_runs_make_a_claim_not_testable(decide, reason):
    (claim,) = paper(decide).judge(table(*sweep()), "packets", "laptop")
    assert (claim.verdict, claim.reason) == (NOT_DECIDABLE, reason)


def test_seeds_without_a_pair_decide_nothing():
    rows = [row("sweep", "allreduce", 0), row("sweep", "topk_0.1", 1)]
    asked = paper(lambda runs: runs.of("sweep").ratio("final", "topk_0.1", "allreduce"))
    (claim,) = asked.judge(table(*rows), "packets", "laptop")
    assert claim.reason == "no seed with final of topk_0.1 and allreduce in sweep"


def test_means_are_of_the_seeds_that_all_methods_have():
    # Seed 2 is the easy one: with it the mean of allreduce alone would be the largest.
    rows = [row("sweep", "topk_0.1", seed, throughput=60.0) for seed in (0, 1)]
    rows += [row("sweep", "allreduce", n, throughput=v) for n, v in enumerate((50.0, 50.0, 99.0))]

    def decide(runs):
        group = runs.of("sweep")
        means = group.mean("throughput", "topk_0.1", "allreduce")
        return Found(True, f"{group.best('throughput', *means)} {means['allreduce']:g}")

    (claim,) = paper(decide).judge(table(*rows), "packets", "laptop")
    assert claim.measured == "topk_0.1 50"


def test_without_a_baseline_there_is_no_speed_up_to_judge():
    rows = [each for each in sweep() if each["method"] != "allreduce"]
    (claim,) = paper(lambda runs: runs.of("sweep").mean("speedup", "topk_0.1")).judge(
        table(*rows), "packets", "laptop"
    )
    assert claim.verdict == NOT_DECIDABLE
    assert claim.reason == "no runs with speedup of topk_0.1 in sweep"


def test_what_needs_the_papers_scale_says_so():
    def decide(runs):
        raise NotDecidable("needs ImageNet")

    (claim,) = paper(decide).judge(table(*sweep()), "packets", "laptop")
    assert (claim.verdict, claim.reason) == (NOT_DECIDABLE, "needs ImageNet")


def test_of_several_settings_the_most_complete_then_the_papers_workers_count():
    few = sweep(conditions={"workers": 2.0}, workers=2)
    eight = sweep(conditions={"workers": 8.0}, workers=8)
    part = [row("sweep", "allreduce", workers=16, conditions={"workers": 16.0})]
    chosen = {}

    def decide(runs):
        chosen.update(runs.of("sweep").mean("workers", "allreduce"))
        return Found(True, "")

    paper(decide).judge(table(*few, *eight, *part), "packets", "laptop")
    assert chosen == {"allreduce": 8}


def test_settings_of_several_experiments_are_one_where_nothing_else_differs():
    both = [{"conditions": {"experiment": name, "steps": 9.0}} for name in ("sweep", "other")]
    rows = sweep(**both[0]) + [row("other", "pace", seed, **both[1]) for seed in (0, 1, 2)]

    def decide(runs):
        found = runs.of("other", "sweep", steps=9.0).ratio("throughput", "pace", "allreduce")
        return Found(found.seeds == 3, f"{found.mean:.4g}")

    (claim,) = paper(decide).judge(table(*rows), "packets", "laptop")
    assert (claim.verdict, claim.measured, len(claim.runs)) == (HOLDS, "0.9806", 6)
    for each in rows[-3:]:
        each["conditions"] = {"experiment": "other", "steps": 8.0}
    (claim,) = paper(lambda runs: runs.of("other", "sweep")).judge(table(*rows), "", "")
    assert claim.reason == "no runs of other and sweep, alike in all else"


def test_runs_that_do_not_decide_are_told_with_their_numbers():
    decide = paper(lambda runs: Found(None, f"{len(runs.of('sweep').rows())} runs", "they scatter"))
    (claim,) = decide.judge(table(*sweep()), "packets", "laptop")
    assert (claim.verdict, claim.measured) == (UNDECIDED, "9 runs")
    assert claim.reason == "they scatter" and len(claim.runs) == 9


def test_packets_and_virtual_time_are_judged_apart():
    name = "dc2_cifar10_vgg16_dynamic"
    real = [
        row(name, "sampled_topk_0.001_no_ef", throughput=100.0, workers=8),
        row(name, "dc2_da2_no_ef", throughput=50.0, workers=8),
    ]
    virtual = [
        row(name, r["method"], setting="virtual", world="virtual", throughput=50.0, workers=8)
        for r in real
    ]
    dense = [row(name, "allreduce", workers=8)]
    dense += [row(name, "allreduce", workers=8, setting="virtual", world="virtual")]
    found = claims.judge(table(*real, *virtual, *dense, copies=3), "dc2")
    twice = {claim.network: claim.verdict for claim in found if "twice" in claim.text}
    assert twice == {"packets": HOLDS, "virtual": FAILS}


def test_without_runs_every_claim_of_every_paper_is_told_once_as_not_testable():
    nothing = table(row("adhoc", "allreduce")).iloc[:0]
    found = claims.judge(nothing)
    arithmetic = {"wire_time_text", "rate_column"}  # of published numbers: by construction
    assert {claim.verdict for claim in found if claim.id not in arithmetic} == {NOT_DECIDABLE}
    without = {"dc2_table2", *arithmetic}
    assert all("no runs of" in claim.reason for claim in found if claim.id not in without)
    told = [(claim.id, claim.text) for claim in found]
    assert len(told) == len(set(told)) and len(told) > 60
    assert {text.split("_")[0] for text, _ in told} >= {"dc2", "netsense"}


def test_a_kind_that_tests_nothing_of_a_paper_is_not_told():
    name = "dc2_cifar10_vgg16_dynamic"
    real = [row(name, each) for each in ("sampled_topk_0.001_no_ef", "dc2_da2_no_ef", "allreduce")]
    other = row("adhoc", "allreduce", world="virtual", setting="other")
    assert {claim.network for claim in claims.judge(table(*real, other), "dc2")} == {"packets"}


def test_an_unknown_paper_is_refused():
    with pytest.raises(ValueError, match=r"one of .*dc2.*got 'dc3'"):
        claims.judge(pd.DataFrame(), "dc3")


@pytest.mark.parametrize(("column", "methods", "undecided"), [
    ("throughput", ("topk_0.1", "allreduce"), True),
    ("speedup", ("topk_0.1",), True),
    ("throughput", ("topk_0.1", "topk_0.001"), False),
])  # fmt: skip
def test_a_stand_in_of_other_buckets_decides_nothing_against_dense(column, methods, undecided):
    """Whatever it hides of dense's communication, the model it stands for hides more, or less."""
    forms = [Form("small", 1, 0.5, 0.0), Form("large", 5, 0.1, 0.8)]
    for told, expected in ((unlike(forms), undecided), ("", False)):
        rows = table(*sweep(unlike=told))
        asked = paper(lambda runs: Found(bool(runs.of("sweep").mean(column, *methods)), "1"))
        (claim,) = asked.judge(rows, "packets", "laptop")
        assert (claim.verdict, claim.measured) == (NOT_DECIDABLE if expected else HOLDS, "1")
        assert ("in the place of large: 5 buckets" in claim.reason) == expected
