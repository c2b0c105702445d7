"""What COVAP's trained stand-ins say: figure 6 and the accuracies of table VII."""

from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, Group, Runs, above, all_of, below, listed, spoken
from harness.reporting.claims.guards import Controls, Regime
from harness.reporting.claims.rules import Rule

TRAINED = "covap_table7"
DENSE, COVAP, PLAIN, WITHOUT = "allreduce", "covap", "covap_init=1", "covap_no_ef"
RIVALS = (DENSE, "topk_0.01_int64", "fp16", "ef_signsgd", "powersgd_rank=1_vectors_apart")
CLOSE = 0.002  # of accuracy, the most that COVAP may lose
STAND_INS = {"ResNet-101": "mlp_as_resnet101", "VGG-19": "mlp_as_vgg19"}
REGIMES = {  # communication over all of computation: the paper's CCR is over backward
    "ResNet-101": Regime(ccr=(1.3, 1.7)),  # 2.1 x 0.074 / 0.104
    "VGG-19": Regime(ccr=(2.4, 2.95)),  # 4.0 x 0.113 / 0.169
}
FORGETS = {  # method: share of the dense accuracy that it has to lose, as in DC2's figures 4 and 9
    "randomk_0.1_no_ef_no_shared": 0.5,
    "topk_0.001_no_ef": 0.15,
}
CONTROLS = [Controls(model, "glyphs", TRAINED, FORGETS) for model in STAND_INS.values()]


def of_model(runs: Runs, model: str) -> Group:
    return runs.of(TRAINED, model__name=STAND_INS[model])


def is_close(model: str) -> Rule:
    """COVAP ends at most `CLOSE` below no compression, pair by pair."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, model)
        one, other = (rules.accuracy_by_pair(group, method) for method in (DENSE, COVAP))
        told = f"accuracy: {listed(rules.accuracies(group, COVAP, DENSE))}"
        lost = group.spread(one - other)
        told += f"; lost {100 * lost.mean:.2g} points, close is up to {100 * CLOSE:g}"
        return Found(below(lost, CLOSE), told, rules.sends(group, COVAP))

    return decide


def is_first(model: str) -> Rule:
    """COVAP reaches the target before every other method; who misses it bounds its time."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, model)
        rows = group.rows(COVAP, *RIVALS)
        missed = set(rows[~rows.reached.astype(bool)].method)
        over = [group.ratio("time_to_target_s", COVAP, rival) for rival in RIVALS]
        told = f"s: {listed(group.mean('time_to_target_s', COVAP, *RIVALS))}"
        told += f"; not reached in some run: {', '.join(sorted(missed))}" if missed else ""
        holds = False if COVAP in missed else all_of(map(below, over))
        return Found(holds, told, rules.sends(group, COVAP))

    return decide


def scheduler_is_better(other: str) -> Rule:
    """Final accuracy with the scheduler over that with plain error feedback, or none."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, "ResNet-101")
        found = group.ratio("final", COVAP, other)
        return Found(above(found), f"accuracy {spoken(found)} times that of {other}")

    return decide
