"""Decide COVAP's claims on time from replays: tables I to III, V, VII, figures 4 to 11."""

import json
from collections.abc import Mapping

import pandas as pd

from harness.reporting.analysis import load
from harness.reporting.claims.base import Found, Group, Runs, above, all_of, below, listed, spoken
from harness.reporting.claims.rules import Rule, is_about
from harness.workloads import form

DENSE, SERIAL, PROFILED = "allreduce", "allreduce_after_backward", "covap"
POWER = "powersgd_rank=1_vectors_apart"
MODELS = {"resnet101": "ResNet-101", "vgg19": "VGG-19", "bert_cn": "Bert", "gpt2": "GPT-2"}
OF_TABLE1 = tuple(MODELS)[:3]
BY_INTERVAL = {"resnet101": "covap_0.34"}  # I = 3; all other models have 4
RIVALS = {
    "DDPovlp": DENSE,
    "Top-k": "topk_0.01_int64",
    "DGC": "dgc_0.01",
    "EFsignSGD": "ef_signsgd",
    "FP16": "fp16",
    "PowerSGD": POWER,
    "Ok-topk": "oktopk_0.01_int64",
}
SWEPT = {f"covap_{density}": every for every, density in enumerate(
    ("1", "0.5", "0.34", "0.25", "0.2", "0.17", "0.145", "0.125"), 1
)}  # fmt: skip
INTERVALS = {"resnet101": 3, "vgg19": 4, "bert_cn": 4, "gpt2": 4}
PROFILED_STEP, UNALIGNED = 2, 0.2  # after two warm-up steps; published error, a share of T_comm
NARROW = "narrow_bert_cn"  # run over real packets and in virtual time
TURN = 4  # steps in which every part is sent once, at I = 4
FLAT = 1.05  # a longer interval gains less than 5 %
NEAR_LINEAR, LITTLE = 0.7, 0.2  # share of linear scaling; exposed communication over computation
WITHIN, BELOW = 0.05, 0.3  # share below linear scaling, in figure 11
SIGN_BYTES = 8  # the authors' code sends a byte for every sign
OF_TABLE2 = {
    "Top-k": "topk_0.01_after_backward_int64",
    "Random-k": "randomk_0.01_after_backward_int64_no_shared",
    "EFsignSGD": "ef_signsgd_after_backward",
    "FP16": "fp16_after_backward",
    "PowerSGD": "powersgd_after_backward_rank=1_vectors_apart",
}


def of_model(runs: Runs, experiment: str, model: str, **conditions: object) -> Group:
    """Return the replays of one model in `experiment` under `conditions`."""
    return runs.of(experiment, model__name=model, **conditions)


def covap_of(model: str) -> str:
    """Return COVAP's run label at the interval that the paper uses for `model`."""
    return BY_INTERVAL.get(model, "covap_0.25")


def said(found: Mapping[str, float], digits: int = 3) -> str:
    return listed({MODELS[model]: value for model, value in found.items()}, digits)


def seconds(group: Group, method: str, part: str = "iteration_s") -> float:
    return group.mean(part, method)[method]


def ratios_of_communication(runs: Runs) -> Found:
    """Decide whether communication takes at least twice backward on all models, most on VGG-19."""
    found = {}
    for model in OF_TABLE1:
        group = of_model(runs, "covap_table1", model)
        row = group.rows(SERIAL).iloc[0]
        found[model] = row.ccr * row.compute_s / row.conditions["model.times.backward_s"]
    holds = min(found.values()) >= 2 and max(found, key=lambda m: found[m]) == "vgg19"
    return Found(holds, said(found))


def gain_falls(runs: Runs) -> Found:
    """Decide whether overlap gains less on models with more communication per backward."""
    gains, ratios = {}, {}
    for model in OF_TABLE1:
        group = of_model(runs, "covap_table1", model)
        gains[model] = seconds(group, SERIAL) / seconds(group, DENSE)
        row = group.rows(SERIAL).iloc[0]
        ratios[model] = row.ccr * row.compute_s / row.conditions["model.times.backward_s"]
    order = sorted(ratios, key=lambda model: ratios[model])
    ranked = [gains[model] for model in order]
    return Found(ranked == sorted(ranked, reverse=True), said(gains))


def compression_of_table2(runs: Runs) -> Found:
    """Decide whether Top-k compresses the longest and FP16 the shortest of table II's methods."""
    group = of_model(runs, "covap_table2", "vgg19")
    found = {name: 1e3 * seconds(group, m, "compress_s") for name, m in OF_TABLE2.items()}
    order = sorted(found, key=lambda name: found[name])
    return Found((order[0], order[-1]) == ("FP16", "Top-k"), f"ms: {listed(found)}")


def signs_communicate_longer(runs: Runs) -> Found:
    """Decide whether EFsignSGD, with a byte for every sign, communicates longer than dense."""
    dense = of_model(runs, "covap_table2", "vgg19")
    efficiency = dense.rows(SERIAL).conditions.iloc[0]["network.efficiency"]
    slow = round(efficiency / SIGN_BYTES, 5)
    signs = of_model(runs, "covap_table2", "vgg19", network__efficiency=slow)
    sign_s, dense_s = (
        seconds(group, method, "ccr") * seconds(group, method, "compute_s")
        for group, method in ((signs, OF_TABLE2["EFsignSGD"]), (dense, SERIAL))
    )
    return Found(sign_s > dense_s, f"{sign_s:.2f} s on 16 workers against {dense_s:.2f} s")


def near_linear(runs: Runs) -> Found:
    """Decide whether FP16 with overlap reaches at least `NEAR_LINEAR` of linear scaling."""
    group = of_model(runs, "covap_table3", "resnet101")
    found = {
        name: seconds(group, method, "compute_s") / seconds(group, method)
        for name, method in {"DDPovlp": DENSE, "FP16": "fp16"}.items()
    }
    told = f"share of linear: {listed(found)}; near is {NEAR_LINEAR:g} or more"
    return Found(found["FP16"] >= NEAR_LINEAR, told)


def largest_bucket(runs: Runs) -> Found:
    """Decide whether FC1, VGG-19's largest layer, has over half of the elements."""
    path = of_model(runs, "covap_table1", "vgg19").rows(SERIAL).path.iloc[0]
    (model, *_) = form.read(load.environment(path))
    return Found(model.largest > 0.5, f"FC1 alone has {100 * model.largest:.0f} % of the elements")


def compression_of_figure7(runs: Runs) -> Found:
    """Decide whether Top-k compresses for over 200 ms and Ok-topk for under a fifth of that."""
    group = of_model(runs, "covap_fig7", "resnet101")
    found = {n: 1e3 * seconds(group, RIVALS[n], "compress_s") for n in ("Top-k", "Ok-topk")}
    holds = found["Top-k"] > 200 and found["Ok-topk"] < found["Top-k"] / 5
    reason = "table II's 500 ms of Ok-topk contradicts the figure"
    return Found(holds, f"ms: {listed(found)}", reason)


def power_of_figure7(runs: Runs) -> Found:
    """Decide whether PowerSGD exposes less than 30 ms of communication (published: 20)."""
    group = of_model(runs, "covap_fig7", "resnet101")
    exposed_s, compress_s = (seconds(group, POWER, part) for part in ("exposed_s", "compress_s"))
    told = f"{1e3 * exposed_s:.0f} and {1e3 * compress_s:.0f} ms"
    return Found(exposed_s < 0.03, told, "table VII's speed-up of 29.92 needs the larger figure")


def profiled_interval(runs: Runs) -> Found:
    """Decide whether COVAP's profiler ends at the published interval on every model."""
    found = {}
    for model in MODELS:
        group = of_model(runs, "covap_table1", model)
        steps = load.steps(group.rows(PROFILED).path.iloc[0])
        found[model] = float(json.loads(steps.controller.iloc[-1])["interval"])
    return Found(found == INTERVALS, said(found))


def unaligned(experiment: str, model: str) -> Rule:
    """Return the rule that workers measure T_comm about `UNALIGNED` longer than the profiler."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, experiment, model)
        over = [_seen_over_told(steps) for steps in group.steps(PROFILED)[PROFILED]]
        about = {is_about(each, UNALIGNED) for each in over}
        told = ", ".join(dict.fromkeys(f"{100 * each:.2g}" for each in over))
        reason = "links alone differ here: what workers compute takes all of them equally long"
        return Found(about.pop() if len(about) == 1 else None, f"up to {told} % longer", reason)

    return decide


def _seen_over_told(steps: pd.DataFrame) -> float:
    told = json.loads(steps.controller.iloc[-1])
    seen = steps[steps.step == PROFILED_STEP].comm_s
    return float(seen.max() / told["comm_s"] - 1)


def balances(runs: Runs) -> Found:
    """Decide whether sharding more than halves the ratio of most to fewest bytes of a step."""
    spread = {}
    group = of_model(runs, "covap_fig4", "vgg19")
    for method in ("covap_0.25", "covap_0.25_no_sharding"):
        steps = load.steps(group.rows(method).path.iloc[0])
        sent = steps.groupby("step").sent_bytes.mean().tail(TURN)
        spread[method] = float(sent.max() / max(1.0, sent.min()))
    sharded, whole = spread.values()
    return Found(sharded < whole / 2, f"largest over smallest step: {listed(spread)}")


def speeds(runs: Runs, model: str) -> dict[int, float]:
    """Return the share of linear scaling that COVAP reaches on `model`, by interval."""
    group = of_model(runs, "covap_fig5", model)
    return {
        every: seconds(group, method, "compute_s") / seconds(group, method)
        for method, every in SWEPT.items()
    }


def flat_beyond_3(runs: Runs) -> Found:
    found = speeds(runs, "resnet101")
    most = max(found.values())
    told = f"of 64 times: at 3 {64 * found[3]:.1f}, at most {64 * most:.1f}"
    return Found(most <= FLAT * found[3], told)


def saturates_at_4(runs: Runs) -> Found:
    """Decide whether a narrow Bert's steps get shorter up to I = 4 and hardly beyond."""
    group = of_model(runs, "covap_fig5_packets", NARROW)
    at = {every: method for method, every in SWEPT.items() if every <= 6}
    shorter = [group.ratio("iteration_s", at[every], at[every + 1]) for every in (1, 2, 3)]
    beyond = [group.ratio("iteration_s", at[4], at[every]) for every in (5, 6)]
    told = f"of I = 1, 2, 3 over the next: {', '.join(map(spoken, shorter))}"
    told += f"; of 4 over 5 and 6: {', '.join(map(spoken, beyond))}"
    holds = [above(each) for each in shorter] + [below(each, FLAT) for each in beyond]
    return Found(all_of(holds), told)


def fastest_at_4(runs: Runs) -> Found:
    found = {model: speeds(runs, model) for model in ("vgg19", "bert_cn")}
    best = {model: float(max(each, key=lambda i: each[i])) for model, each in found.items()}
    reason = "sending less always saves time here"
    return Found(set(best.values()) == {4.0}, f"fastest at {said(best)}", reason)


def hides(runs: Runs) -> Found:
    """Decide whether COVAP exposes at most `LITTLE` of its computation on all four models."""
    found = {}
    for model in MODELS:
        group, method = of_model(runs, "covap_fig7", model), covap_of(model)
        found[model] = seconds(group, method, "exposed_s") / seconds(group, method, "compute_s")
    told = f"exposed over computation: {said(found)}; little is {LITTLE:g} or less"
    reason = "VGG-19's first linear layer is a quarter of all communication in every step"
    return Found(max(found.values()) <= LITTLE, told, reason)


def ranked(runs: Runs, model: str) -> list[str]:
    """Return the published names of the methods by step time on `model`, fastest first."""
    group = of_model(runs, "covap_fig7", model)
    names = RIVALS | {"COVAP": covap_of(model)}
    took = {name: seconds(group, method) for name, method in names.items()}
    return sorted(took, key=lambda name: took[name])


def fastest_of_all(runs: Runs) -> Found:
    found = {model: ranked(runs, model) for model in MODELS}
    told = "; ".join(f"{MODELS[m]}: {' > '.join(order[:3])}" for m, order in found.items())
    return Found(all(order[0] == "COVAP" for order in found.values()), told)


def second(runs: Runs) -> Found:
    found = {model: ranked(runs, model)[1] for model in MODELS}
    told = ", ".join(f"{MODELS[model]}: {name}" for model, name in found.items())
    wanted = {model: "FP16" if model == "resnet101" else "PowerSGD" for model in MODELS}
    return Found(found == wanted, told)


def below_linear(method: str, least: float, most: float) -> Rule:
    """Return the rule that `method` is `least` to `most` below linear on 64 workers, ResNet-101."""

    def decide(runs: Runs) -> Found:
        group = of_model(runs, "covap_fig11", "resnet101", workers=64)
        found = 1 - seconds(group, method, "compute_s") / seconds(group, method)
        return Found(least <= found <= most, f"{100 * found:.1f} % below")

    return decide


def gathers_grow_little(runs: Runs) -> Found:
    """Decide whether gathering methods speed up less than 4 times from 8 to 64 workers."""
    few, many = (of_model(runs, "covap_fig11", "resnet101", workers=w) for w in (8, 64))
    methods = {"Random-k": "randomk_0.01_int64_no_shared", "EFsignSGD": "ef_signsgd"}
    found = {n: 8 * seconds(few, m) / seconds(many, m) for n, m in methods.items()}
    told = f"{listed(found)} times, signs as bits, without any cost inside a node"
    return Found(max(found.values()) < 4, told)


COVAP_BELOW = below_linear("covap_0.34", 0.0, WITHIN)
POWER_BELOW = below_linear(POWER, BELOW, 1.0)
