"""Decide ACP-SGD's claims on accuracy from trained models: figures 6 and 7."""

from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, Group, Runs, above, below, listed
from harness.reporting.claims.guards import Controls, Regime
from harness.reporting.claims.rules import Rule

TRAINED, ON_A_GPU = "acp_fig6", "acp_fig6_glyphs"
DENSE, POWER, ACP = "allreduce", "powersgd", "acp_sgd"
NO_FEEDBACK, NO_REUSE = "acp_sgd_no_ef", "acp_sgd_no_reuse"
STAND_INS = {"ResNet-18": "mlp_as_resnet18_cifar", "VGG-16": "mlp_as_vgg16_bn_cifar"}
FORGETS = ("randomk_0.1_no_ef_no_shared", "topk_0.001_no_ef")  # negative controls
NETS = {"ResNet-18": "resnet18_cifar", "VGG-16": "vgg16_cifar"}  # the paper's networks
MODELS = {TRAINED: STAND_INS, ON_A_GPU: NETS}  # by experiment
STAND_IN = Regime()
PUBLISHED = Regime(steps=29_400)  # 300 epochs of 50,000 images, 4 workers of batch 128
CONTROLS = [
    Controls(model, "glyphs", experiment, FORGETS)
    for experiment, models in MODELS.items()
    for model in models.values()
]


def of_model(runs: Runs, model: str, experiment: str) -> Group:
    return runs.of(experiment, model__name=MODELS[experiment][model])


def ends_as(model: str, rival: str, experiment: str = TRAINED) -> Rule:
    """Return the rule that ACP-SGD ends at most `rules.NEAR` below `rival`, pair by pair."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, model, experiment)
        one, other = (rules.accuracy_by_pair(group, method) for method in (rival, ACP))
        told = f"accuracy: {listed(rules.accuracies(group, ACP, rival))}"
        told += f"; as accurate is up to {rules.NEAR:g} below"
        holds = below(group.spread(one - other), rules.NEAR)
        return Found(holds, told, rules.sends(group, ACP), loss=holds is False)

    return decide


def loses(model: str, ablated: str, experiment: str = TRAINED) -> Rule:
    """Return the rule that `ablated`, ACP-SGD without one part, ends less accurate than ACP-SGD."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, model, experiment)
        one, other = (rules.accuracy_by_pair(group, method) for method in (ACP, ablated))
        told = f"accuracy: {listed(rules.accuracies(group, ACP, ablated))}"
        holds = above(group.spread(one - other), 0.0)
        return Found(holds, told, rules.easy(group), loss=holds is True)

    return decide
