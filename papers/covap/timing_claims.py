"""COVAP's claims on tables 1 to 3, 5 and 7, figures 5, 7 to 11."""

from math import inf

from harness.fidelity import replays
from harness.fidelity.layers import tensors
from harness.fidelity.replays import Iteration, ReplayJob, all_reduce_s
from harness.fidelity.timing import TimingClaim
from papers.covap.predictor import GATHERING, OTHERS, PROFILED, TRAINED, Covap

PROFILED_MODELS = ("ResNet-101", "VGG-19", "Bert")
TRAINED_MODELS = ("ResNet-101", "VGG-19", "Bert", "GPT-2")
INTERVALS = range(1, 9)
FLAT = 1.05  # another interval makes less than 5 % of difference
NEAR_LINEAR, LITTLE = 0.7, 0.2  # of linear scaling; exposed over computation
WITHIN, BELOW = 0.05, 0.3  # of figure 11


def claims(covap: Covap) -> list[TimingClaim]:
    """Claims with their verdicts and the numbers that decide them."""
    return [*_profiled(covap), *_figures(covap), *_table7(covap), *_scaling(covap)]


def _run(
    covap: Covap, model: str, method: str, run: str = TRAINED, workers: int = 64, every: int = 0
) -> Iteration:
    job = ReplayJob(model, covap.testbed.compute(model, run), covap.testbed.cluster(workers))
    return covap.iteration(job, method, every or covap.interval(model))


def _speedup(covap: Covap, model: str, method: str, run: str = TRAINED, every: int = 0) -> float:
    found = _run(covap, model, method, run, every=every)
    return 64 * found.compute_s / found.total_s


def _listed(values: dict[str, float], digits: int = 2) -> str:
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


def _profiled(covap: Covap) -> list[TimingClaim]:
    ratios, gains = {}, {}
    for model in PROFILED_MODELS:
        found = _run(covap, model, "DDPovlp", PROFILED)
        ratios[model] = found.comm_s / covap.testbed.compute(model, PROFILED).backward_s
        gains[model] = (found.compute_s + found.comm_s) / found.total_s
    order = sorted(ratios, key=lambda model: ratios[model])
    falls = all(gains[a] >= gains[b] for a, b in zip(order, order[1:], strict=False))
    dense = _run(covap, "VGG-19", "DDPovlp", PROFILED)
    overheads = {
        method: 1e3 * _run(covap, "VGG-19", method, PROFILED).compress_s
        for method in ("Random-k", *OTHERS)
    }
    signs = _run(covap, "VGG-19", "EFsignSGD", PROFILED, workers=16)
    linear = {
        method: _speedup(covap, "ResNet-101", method, PROFILED) / 64
        for method in ("DDPovlp", "FP16")
    }
    buckets = [all_reduce_s(covap.testbed.cluster(), 4 * n) for n in (107480576, 143667240)]
    return [
        TimingClaim(
            "covap_table1",
            "communication takes a multiple of backward: CCR 2.1, 4.0, 3.1",
            all(ratio >= 2 for ratio in ratios.values()) and order[-1] == "VGG-19",
            _listed(ratios),
            cells=[{"id": "covap_table1", "model": m, "metric": "CCR"} for m in PROFILED_MODELS],
        ),
        TimingClaim("covap_table1", "the gain of overlap falls with CCR", falls, _listed(gains, 3)),
        TimingClaim(
            "covap_table2",
            "Top-k costs the most compression, FP16 the least",
            max(overheads, key=lambda m: overheads[m]) == "Top-k"
            and min(overheads, key=lambda m: overheads[m]) == "FP16",
            "ms: " + _listed(overheads, 0),
            cells=[{"id": "covap_table2", "metric": "T_compress"}],
        ),
        TimingClaim(
            "covap_table2",
            "EFsignSGD communicates longer than no compression",
            signs.comm_s > dense.comm_s,
            f"{signs.comm_s:.2f} s on 16 GPUs against {dense.comm_s:.2f} s",
            cells=[
                {
                    "id": "covap_table2",
                    "method": "EFsignSGD",
                    "metric": "T_comm_minus_T_comm_GC",
                }
            ],
        ),
        TimingClaim(
            "covap_table3",
            "compression with overlap is near linear once CCR is about 1",
            linear["FP16"] >= NEAR_LINEAR,
            f"share of linear: {_listed(linear)}; near is {NEAR_LINEAR} or more",
        ),
        TimingClaim(
            "covap_table5",
            "the bucket with FC1 takes most of the communication",
            buckets[0] > buckets[1] / 2,
            f"{100 * buckets[0] / buckets[1]:.0f} %",
        ),
    ]


def _figures(covap: Covap) -> list[TimingClaim]:
    sweeps = {
        model: [_speedup(covap, model, "COVAP", every=every) for every in INTERVALS]
        for model in PROFILED_MODELS
    }
    flat = max(sweeps["ResNet-101"]) / sweeps["ResNet-101"][2]
    best = {model: 1 + sweep.index(max(sweep)) for model, sweep in sweeps.items()}
    largest = ("VGG-19", "Bert")
    spreads = {
        cut: max(steps) / min(steps) if min(steps) else inf
        for cut, steps in (("whole", _phases(covap, False)), ("sharded", _phases(covap, True)))
    }
    exposed = {
        model: (found := _run(covap, model, "COVAP")).exposed_s / found.compute_s
        for model in TRAINED_MODELS
    }
    overheads = {m: 1e3 * _run(covap, "ResNet-101", m).compress_s for m in ("Top-k", "Ok-topk")}
    power = _run(covap, "ResNet-101", "PowerSGD")
    return [
        TimingClaim(
            "covap_fig4",
            "sharding balances what VGG-19 communicates from step to step",
            spreads["sharded"] < spreads["whole"] / 2,
            f"longest over shortest step at I = 4: {spreads['sharded']:.1f}, without "
            f"{spreads['whole']:.1f}",
        ),
        TimingClaim(
            "covap_fig5a",
            "ResNet-101's speed-up is flat beyond a ratio of 3",
            flat <= FLAT,
            f"at 3 {sweeps['ResNet-101'][2]:.1f}, at most {max(sweeps['ResNet-101']):.1f}",
            cells=[],  # the published one is the interval itself
        ),
        TimingClaim(
            "covap_fig5bc",
            "the two others are fastest at a ratio of 4",
            all(best[model] == 4 for model in largest),
            f"here at {best['VGG-19']} and {best['Bert']}",
            "sending less always saves time, and what the paper's own larger ratios lose is not in "
            "its description",
        ),
        TimingClaim(
            "covap_fig7-10",
            "COVAP communicates little beside computation",
            all(share <= LITTLE for share in exposed.values()),
            f"exposed over computation: {_listed(exposed)}; little is {LITTLE} or less",
            "VGG-19's FC1 is a quarter of all communication in every step, whatever is hidden",
        ),
        TimingClaim(
            "covap_fig7",
            "Top-k spends several hundred ms on compression, Ok-topk a tenth of it",
            overheads["Top-k"] > 200 and overheads["Ok-topk"] < overheads["Top-k"] / 5,
            f"ms: {_listed(overheads, 0)}",
            "table II's 500 ms of Ok-topk contradicts the figure",
            cells=[
                {"id": "covap_fig7", "method": method, "metric": "compression_overhead_approx"}
                for method in ("Top-k", "Ok-topk")
            ],
        ),
        TimingClaim(
            "covap_fig7",
            "PowerSGD: 20 ms of communication and 10 of compression",
            power.exposed_s < 0.03,
            f"{1e3 * power.exposed_s:.0f} and {1e3 * power.compress_s:.0f} ms",
            "table VII's speed-up of 29.92 needs the larger figure",
            cells=[
                {"id": "covap_fig7", "method": "PowerSGD", "metric": metric}
                for metric in ("communication_overhead", "compression_overhead")
            ],
        ),
    ]


def _phases(covap: Covap, sharded: bool) -> list[float]:
    """Communication of each of four steps of VGG-19."""
    cluster = covap.testbed.cluster()
    if sharded:
        job = ReplayJob("VGG-19", covap.testbed.compute("VGG-19"), cluster)
        return [step.comm_s for step in replays.steps(job, covap.method("COVAP", 4))]
    sizes = replays.buckets({each.name: each.elements for each in tensors("VGG-19")})
    whole_s = [all_reduce_s(cluster, 4 * size) for size in sizes]
    return [sum(whole_s[-step % 4 :: 4]) for step in range(4)]


def _table7(covap: Covap) -> list[TimingClaim]:
    speeds = {
        model: {m: _speedup(covap, model, m) for m in ("DDPovlp", "COVAP", *OTHERS)}
        for model in TRAINED_MODELS
    }
    ranked = {model: sorted(each, key=lambda m: -each[m]) for model, each in speeds.items()}
    return [
        TimingClaim(
            "covap_table7",
            "COVAP is the fastest on all four models",
            all(order[0] == "COVAP" for order in ranked.values()),
            ", ".join(f"{model}: {' > '.join(order[:3])}" for model, order in ranked.items()),
        ),
        TimingClaim(
            "covap_table7",
            "FP16 is second on ResNet-101, PowerSGD on the others",
            ranked["ResNet-101"][1] == "FP16"
            and all(ranked[model][1] == "PowerSGD" for model in TRAINED_MODELS[1:]),
            ", ".join(f"{model}: {order[1]}" for model, order in ranked.items())
            + _close(speeds, ranked),
        ),
    ]


def _close(speeds: dict[str, dict[str, float]], ranked: dict[str, list[str]]) -> str:
    """Name the models for which FP16 and PowerSGD change places, with their speeds."""
    told = [
        f"{model} FP16 {speeds[model]['FP16']:.1f}, PowerSGD {speeds[model]['PowerSGD']:.1f}"
        for model in TRAINED_MODELS[1:]
        if ranked[model][1] != "PowerSGD"
    ]
    return f" ({'; '.join(told)})" if told else ""


def _scaling(covap: Covap) -> list[TimingClaim]:
    below = {
        method: 1 - _speedup(covap, "ResNet-101", method, PROFILED) / 64
        for method in ("COVAP", "PowerSGD")
    }
    growth = {}
    for method in GATHERING:
        few, many = (_run(covap, "ResNet-101", method, PROFILED, workers=w) for w in (8, 64))
        growth[method] = 8 * few.total_s / many.total_s
    return [
        TimingClaim(
            "covap_fig11a",
            "COVAP stays within 5 % of linear on ResNet-101",
            below["COVAP"] <= WITHIN,
            f"{100 * below['COVAP']:.1f} % below",
        ),
        TimingClaim(
            "covap_fig11a",
            "PowerSGD is 30 % below linear",
            below["PowerSGD"] >= BELOW,
            f"{100 * below['PowerSGD']:.1f} % below",
        ),
        TimingClaim(
            "covap_fig11a",
            "with 8 times the GPUs methods that gather grow less than half as much",
            all(growth[method] < 4 for method in ("Random-k", "EFsignSGD")),
            f"{_listed(growth)}, without any cost inside a node",
            cells=[{"id": "covap_fig11a", "metric": "speedup_growth_8_to_64"}],
        ),
    ]
