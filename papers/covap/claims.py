"""COVAP's claims (Meng et al., 2023) that replays of figure 1 decide: ResNet-101 on 64 workers.

What it says of other models and of time alone is predicted: `timing_claims`.
"""

from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, PaperClaims, Runs, listed, spoken
from harness.reporting.claims.rules import Rule
from papers.covap.timing_claims import BELOW, LITTLE, WITHIN

TIMELINES = "covap_fig1"
DENSE, SERIAL = "allreduce", "allreduce_after_backward"
COVAP, POWER = "covap_0.25", "powersgd_rank=1_vectors_apart"
OTHERS = (DENSE, SERIAL, POWER, "topk_0.01", "topk_0.01_after_backward")


def of_backward(runs: Runs) -> Found:
    """Communication over the time that backward was given."""
    row = runs.of(TIMELINES).rows(SERIAL).iloc[0]
    backward_s = row.conditions["model.times.backward_s"]
    found = row.ccr * row.compute_s / backward_s
    return Found(rules.is_about(found, 2.1), f"{found:.3g} times")


def gains_by_overlap(runs: Runs) -> Found:
    """A step without overlap over one with it."""
    group = runs.of(TIMELINES)
    found = group.ratio("iteration_s", SERIAL, DENSE)
    return Found(rules.meets(found, 1.43), f"{spoken(found)} times as long without")


def hides(runs: Runs) -> Found:
    """What COVAP leaves of communication that nothing hides, over computation."""
    group = runs.of(TIMELINES)
    exposed, compute = (group.mean(part, COVAP)[COVAP] for part in ("exposed_s", "compute_s"))
    told = f"exposed over computation: {exposed / compute:.3g}; little is {LITTLE:g} or less"
    return Found(exposed <= LITTLE * compute, told, rules.limits(group, COVAP))


def below_linear(method: str, least: float, most: float) -> Rule:
    """Share of a step that is no computation, in (least, most]: scaling below linear."""

    def decide(runs: Runs) -> Found:
        group = runs.of(TIMELINES)
        step, compute = (group.mean(part, method)[method] for part in ("iteration_s", "compute_s"))
        found = 1 - compute / step
        return Found(least <= found <= most, f"{100 * found:.1f} % below", listed({method: step}))

    return decide


PAPER = PaperClaims("covap", workers=64)
PAPER.says(
    "covap_table1",
    "ResNet-101: communication takes 2.1 times backward",
    of_backward,
    cells=[
        {"id": "covap_table1", "model": "ResNet-101", "metric": metric}
        for metric in ("T_comm", "T_comp")
    ],
)
PAPER.says(
    "covap_table1",
    "ResNet-101: a step is 1.43 times as fast with overlap",
    gains_by_overlap,
    cells=[{"id": "covap_table1", "model": "ResNet-101", "metric": "S_ovlp"}],
)
PAPER.says("covap_fig1", "ResNet-101: COVAP leaves little communication exposed", hides)
PAPER.says(
    "covap_fig1",
    "ResNet-101: COVAP is the fastest, with overlap and compression of others or without",
    rules.highest(TIMELINES, "throughput", COVAP, OTHERS),
)
PAPER.says(
    "covap_fig11a",
    "COVAP stays within 5 % of linear on ResNet-101",
    below_linear(COVAP, 0.0, WITHIN),
)
PAPER.says("covap_fig11a", "PowerSGD is 30 % below linear", below_linear(POWER, BELOW, 1.0))
