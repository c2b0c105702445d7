"""Decide ACP-SGD's claims on time from replays: figures 2, 3, 5 and 8 to 13, table III."""

from statistics import fmean

from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims.base import Found, Group, Runs, above, all_of, below, listed, spoken
from harness.reporting.claims.rules import Rule, is_about
from papers.acp_sgd import sizes

DENSE = "allreduce"
MODELS = {
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "bert_base": "BERT-Base",
    "bert_large": "BERT-Large",
}
RESNETS, BERTS = tuple(MODELS)[:2], tuple(MODELS)[2:]
SWEPT, FUSED = ("resnet50", "bert_base"), ("resnet152", "bert_large")
IN_HOOKS = 2.151  # slowdown of per-tensor compression inside backward hooks
NARROW = "narrow_bert_base"  # run over real packets and in virtual time
AS_FAST = 0.99  # speed ratio; only below it a step counts as slower
METHODS = ("S-SGD", "Power-SGD*", "ACP-SGD")
BUFFERS_MB = (0, 25, 50, 100, 500, 1000, 1500)
SIGN = "signsgd_after_backward_bucket_mb=1000000"
TOP_K = "topk_0.001_after_backward_bucket_mb=1000000_int64"
NEARLY_LINEAR = 1.1  # iteration over computation
NEAR_BEST = 1.1
SMALL_POINTS = 30.0  # percentage points, in figure 5


def of_model(runs: Runs, experiment: str, model: str, **conditions: object) -> Group:
    """Return the replays of one model in `experiment` under `conditions`."""
    return runs.of(experiment, model__name=model, **conditions)


def ranked(name: str, model: str) -> str:
    """Return the run label of the paper's method `name`, with the rank it uses for `model`."""
    rank = "_rank=32" if model in BERTS else ""
    return {
        "S-SGD": DENSE,
        "Power-SGD": f"powersgd_packed{rank}",
        "Power-SGD*": f"powersgd{rank}_vectors_apart",
        "ACP-SGD": f"acp_sgd{rank}",
    }[name]


def step_ms(group: Group, method: str) -> float:
    return 1e3 * group.mean("iteration_s", method)[method]


def table3(runs: Runs, name: str) -> dict[str, float]:
    """Return the mean step time of method `name` on each model, in ms."""
    return {
        model: step_ms(of_model(runs, "acp_table3", model), ranked(name, model)) for model in MODELS
    }


def said(found: dict[str, float], digits: int = 3) -> str:
    return listed({MODELS[model]: value for model, value in found.items()}, digits)


def fastest_of_all(runs: Runs) -> Found:
    names = ("S-SGD", "Power-SGD", "Power-SGD*", "ACP-SGD")
    found = {name: table3(runs, name) for name in names}
    best = all(
        found["ACP-SGD"][model] < found[name][model] for model in MODELS for name in names[:3]
    )
    told = f"ms: {said(found['ACP-SGD'])}; S-SGD {said(found['S-SGD'])}"
    return Found(best, told)


def star_wins_on_resnets(runs: Runs) -> Found:
    star, packed = table3(runs, "Power-SGD*"), table3(runs, "Power-SGD")
    wins = [model for model in MODELS if star[model] < packed[model]]
    told = f"it wins on {', '.join(MODELS[model] for model in wins) or 'none'}"
    reason = "a hook that waits hides nothing here, and has more collectives to start"
    return Found(tuple(wins) == RESNETS, told, reason)


def nearly_linear(runs: Runs) -> Found:
    """Decide whether ACP-SGD's step takes at most `NEARLY_LINEAR` times its computation."""
    found = {}
    for model in SWEPT:
        group, method = of_model(runs, "acp_table3", model), ranked("ACP-SGD", model)
        found[model] = 1e-3 * step_ms(group, method) / group.mean("compute_s", method)[method]
    told = f"iteration over computation: {said(found)}; nearly is {NEARLY_LINEAR:g} or less"
    return Found(max(found.values()) <= NEARLY_LINEAR, told)


def power_is_best(runs: Runs) -> Found:
    """Decide whether Power-SGD has the shortest step of figure 2's compressors on every model."""
    power, rivals = {}, {}
    for model in MODELS:
        group = of_model(runs, "acp_fig2", model)
        power[model] = step_ms(group, ranked("Power-SGD", model))
        rivals[model] = min(step_ms(group, method) for method in (SIGN, TOP_K))
    told = f"ms: {said(power)}; the better of Sign-SGD and Top-k {said(rivals)}"
    return Found(all(power[model] < rivals[model] for model in MODELS), told)


def power_wins_on_berts(runs: Runs) -> Found:
    power, dense = table3(runs, "Power-SGD"), table3(runs, "S-SGD")
    wins = tuple(model for model in MODELS if power[model] < dense[model])
    return Found(wins == BERTS, f"on {', '.join(MODELS[model] for model in wins)}")


def top_k_wins_on_bert_large(runs: Runs) -> Found:
    """Decide whether Top-k beats S-SGD on BERT-Large and on at most one other model (figure 2)."""
    wins = []
    for model in MODELS:
        group = of_model(runs, "acp_fig2", model)
        if step_ms(group, TOP_K) < step_ms(group, DENSE):
            wins.append(model)
    told = f"faster on {', '.join(MODELS[model] for model in wins) or 'none'}"
    reason = "figure 2 contradicts table III; all-gathers have the all-reduces' rate here"
    return Found("bert_large" in wins and len(wins) <= 2, told, reason)


def top_k_communicates_less(runs: Runs) -> Found:
    """Decide whether Sign-SGD communicates at least 7 times as long as Top-k on BERT-Base."""
    group = of_model(runs, "acp_fig2", "bert_base")
    ratios, computes = (group.mean(part, SIGN, TOP_K) for part in ("ccr", "compute_s"))
    sign_s, top_s = (ratios[method] * computes[method] for method in (SIGN, TOP_K))
    return Found(sign_s >= 7 * top_s, f"{sign_s / top_s:.1f} times as long")


def more_small_tensors(runs: Runs) -> Found:
    """Decide whether P and Q have about 30 points more small tensors than the gradients.

    Sizes follow from the models' layers; replays of table III must exist for these models.
    """
    more = {}
    for model, name in MODELS.items():
        if name in sizes.RANKS:
            of_model(runs, "acp_table3", model).rows(ranked("ACP-SGD", model))
            gradients, *factors = sizes.shares(name).values()
            more[model] = 100 * (fmean(factors) - gradients)
    return Found(
        all(is_about(each, SMALL_POINTS) for each in more.values()), f"points: {said(more)}"
    )


def fused(name: str, how: str, rank: str) -> str:
    """Return the run label in figure 9; `how`: naive, WFBP (wait-free, per tensor), TF (fused)."""
    methods = {
        "naive": {
            "S-SGD": "allreduce_after_backward_bucket_mb=0",
            "Power-SGD*": f"powersgd_packed_bucket_mb=0{rank}_vectors_apart",
            "ACP-SGD": f"acp_sgd_after_backward_bucket_mb=0_fusion=uncompressed{rank}",
        },
        "WFBP": {
            "S-SGD": "allreduce_bucket_mb=0",
            "Power-SGD*": f"powersgd_bucket_mb=0{rank}_vectors_apart",
            "ACP-SGD": f"acp_sgd_bucket_mb=0_fusion=uncompressed{rank}",
        },
        "TF": {
            "S-SGD": DENSE,
            "Power-SGD*": f"powersgd{rank}_vectors_apart",
            "ACP-SGD": f"acp_sgd{rank}",
        },
    }
    return methods[how][name]


def fused_ms(runs: Runs, name: str, model: str, how: str) -> float:
    """Return a method's step time in figure 9 on `model`, in ms; `how` is that of `fused`."""
    factor = IN_HOOKS if how == "WFBP" else 1.0
    group = of_model(runs, "acp_fig9", model, emulation__interference=factor)
    return step_ms(group, fused(name, how, "_rank=32" if model in BERTS else ""))


def gains(runs: Runs, before: str, after: str) -> dict[str, float]:
    """Return each method's speed-up of mode `after` over `before`, mean over figure 9's models."""
    return {
        name: fmean(fused_ms(runs, name, m, before) / fused_ms(runs, name, m, after) for m in FUSED)
        for name in ("S-SGD", "ACP-SGD", "Power-SGD*")
    }


def wait_free_gains(runs: Runs) -> Found:
    found = gains(runs, "naive", "WFBP")
    holds = found["S-SGD"] > 1.05 and found["ACP-SGD"] > 1.05
    return Found(holds, f"times as fast: {listed(found)}")


def wait_free_slows_power(runs: Runs) -> Found:
    found = gains(runs, "naive", "WFBP")["Power-SGD*"]
    return Found(found < 1, f"times as fast: {found:.3g}, by the interference read on ResNet-50")


def fusion_gains(runs: Runs) -> Found:
    found = gains(runs, "WFBP", "TF")
    most = max(found, key=lambda name: found[name])
    return Found(
        min(found.values()) > 1.05 and most == "Power-SGD*", f"times as fast: {listed(found)}"
    )


def times_as_fast(runs: Runs, before: str, after: str) -> dict[str, Ratio]:
    """Return the speed-ups of `gains` for a narrow BERT-Base, as ratios paired by seeds."""
    group = of_model(runs, "acp_fig9_packets", NARROW)
    return {
        name: group.ratio("iteration_s", *(fused(name, how, "") for how in (before, after)))
        for name in METHODS
    }


def told_of(found: dict[str, Ratio]) -> str:
    return ", ".join(f"{name} {spoken(each)}" for name, each in found.items())


def narrow_wait_free_gains(runs: Runs) -> Found:
    found = times_as_fast(runs, "naive", "WFBP")
    holds = all_of(above(found[name]) for name in ("S-SGD", "ACP-SGD"))
    return Found(holds, f"times as fast: {told_of(found)}")


def narrow_wait_free_slows_power(runs: Runs) -> Found:
    found = times_as_fast(runs, "naive", "WFBP")["Power-SGD*"]
    return Found(below(found, AS_FAST), f"times as fast: {spoken(found)}")


def narrow_fusion_gains(runs: Runs) -> Found:
    found = times_as_fast(runs, "WFBP", "TF")
    return Found(all_of(map(above, found.values())), f"times as fast: {told_of(found)}")


def narrow_gains(mbit: float) -> Rule:
    """Return the rule that ACP-SGD beats S-SGD and Power-SGD* on a narrow BERT-Base at `mbit`."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, "acp_fig13_packets", NARROW, profile__rate_mbit=mbit)
        ours = ranked("ACP-SGD", NARROW)
        found = {
            name: group.ratio("iteration_s", ranked(name, NARROW), ours) for name in METHODS[:2]
        }
        return Found(all_of(map(above, found.values())), f"over ACP-SGD: {told_of(found)}")

    return decide


def buffers_ms(runs: Runs, rank: int) -> dict[int, float]:
    group = of_model(runs, "acp_fig10", "bert_large")
    return {mb: step_ms(group, f"acp_sgd_bucket_mb={mb}_rank={rank}") for mb in BUFFERS_MB}


def near_best(runs: Runs) -> Found:
    """Decide whether a 25 MB buffer is within `NEAR_BEST` of the best, at ranks 32 and 256."""
    found = {rank: buffers_ms(runs, rank) for rank in (32, 256)}
    over = {f"rank {rank}": each[25] / min(each.values()) for rank, each in found.items()}
    return Found(max(over.values()) <= NEAR_BEST, f"over the best: {listed(over)}")


def before_power_at_any(runs: Runs) -> Found:
    """Decide whether ACP-SGD with its worst buffer beats Power-SGD* with its best, at rank 32."""
    group = of_model(runs, "acp_fig10", "bert_large")
    power = min(
        step_ms(group, f"powersgd_bucket_mb={mb}_rank=32_vectors_apart") for mb in BUFFERS_MB
    )
    most = max(buffers_ms(runs, 32).values())
    return Found(most < power, f"at most {most:.0f} ms against at least {power:.0f}")


def lead_shrinks(runs: Runs) -> Found:
    """Decide whether S-SGD's step over ACP-SGD's falls with the batch and stays above 1."""
    found = []
    for batch in (8, 16, 24, 32):
        group = of_model(runs, "acp_fig11", "resnet152", batch_size=batch)
        found.append(step_ms(group, DENSE) / step_ms(group, "acp_sgd"))
    told = ", ".join(f"{each:.2f}" for each in found)
    return Found(found == sorted(found, reverse=True) and found[-1] > 1, told)


def leads_by_rank(runs: Runs) -> dict[int, float]:
    """Return Power-SGD*'s step time over ACP-SGD's on BERT-Large, by rank."""
    group = of_model(runs, "acp_fig11", "bert_large")
    return {
        rank: step_ms(group, f"powersgd_rank={rank}_vectors_apart")
        / step_ms(group, f"acp_sgd_rank={rank}")
        for rank in (32, 64, 128, 256)
    }


def lead_grows(runs: Runs) -> Found:
    found = list(leads_by_rank(runs).values())
    return Found(found == sorted(found), ", ".join(f"{each:.2f}" for each in found))


def growth(runs: Runs, name: str) -> float:
    """Return by how many percent a step grows from 8 to 64 workers, mean over both models."""
    found = []
    for model in SWEPT:
        few, many = (of_model(runs, "acp_fig12", model, workers=w) for w in (8, 64))
        found.append(step_ms(many, ranked(name, model)) / step_ms(few, ranked(name, model)))
    return 100 * (fmean(found) - 1)


def power_slows_most(runs: Runs) -> Found:
    found = {name: growth(runs, name) for name in ("S-SGD", "Power-SGD*", "ACP-SGD")}
    holds = found["Power-SGD*"] > found["S-SGD"] > found["ACP-SGD"]
    told = f"%: {listed(found)}; waiting for the slowest worker is not modelled"
    return Found(holds, told)


def over_dense(runs: Runs, mbit: float) -> dict[str, dict[str, float]]:
    """Return S-SGD's step time over each method's at a rate, by method, then by model."""
    found: dict[str, dict[str, float]] = {}
    for name in ("Power-SGD*", "ACP-SGD"):
        found[name] = {}
        for model in SWEPT:
            group = of_model(runs, "acp_fig13", model, profile__rate_mbit=mbit)
            found[name][model] = step_ms(group, DENSE) / step_ms(group, ranked(name, model))
    return found


def gains_at_1_gbit(runs: Runs) -> Found:
    power, ours = over_dense(runs, 1000.0).values()
    holds = min([*power.values(), *ours.values()]) > 5
    holds = holds and all(ours[model] > power[model] for model in SWEPT)
    return Found(holds, f"ACP-SGD {said(ours)}; Power-SGD* {said(power)}")


def gains_at_100_gbit(runs: Runs) -> Found:
    gain = over_dense(runs, 100_000.0)["ACP-SGD"]["bert_base"]
    told = f"{100 * (gain - 1):.0f} %, had that network the efficiency of the Ethernet"
    return Found(gain > 1.1, told)
