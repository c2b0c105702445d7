"""Decide COVAP's claims (Meng et al., 2023) from the run directories of its experiments."""

from collections.abc import Callable
from functools import partial

from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, Group, PaperClaims, Runs, spoken
from papers.covap import replays, trained

TIMELINES = "covap_fig1"
DENSE, SERIAL = "allreduce", "allreduce_after_backward"
COVAP, POWER = "covap_0.34", "powersgd_rank=1_vectors_apart"
OTHERS = (DENSE, SERIAL, POWER, "topk_0.01", "topk_0.01_after_backward")


def of_backward(runs: Runs) -> Found:
    """Decide whether ResNet-101's communication takes about 2.1 times as long as backward."""
    row = runs.of(TIMELINES).rows(SERIAL).iloc[0]
    backward_s = row.conditions["model.times.backward_s"]
    found = row.ccr * row.compute_s / backward_s
    return Found(rules.is_about(found, 2.1), f"{found:.3g} times")


def gains_by_overlap(runs: Runs) -> Found:
    """Decide whether a step without overlap takes 1.43 times one with it, within `rules.FACTOR`."""
    group = runs.of(TIMELINES)
    found = group.ratio("iteration_s", SERIAL, DENSE)
    return Found(rules.meets(found, 1.43), f"{spoken(found)} times as long without")


def hides(runs: Runs) -> Found:
    """Decide whether COVAP's exposed communication is at most `LITTLE` of its computation."""
    group = runs.of(TIMELINES)
    exposed, compute = (group.mean(part, COVAP)[COVAP] for part in ("exposed_s", "compute_s"))
    told = (
        f"exposed over computation: {exposed / compute:.3g}; little is {replays.LITTLE:g} or less"
    )
    return Found(exposed <= replays.LITTLE * compute, told, rules.limits(group, COVAP))


PAPER = PaperClaims("covap", workers=64, controls=trained.CONTROLS)
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
    "covap_table1",
    "communication takes a multiple of backward: CCR 2.1, 4.0, 3.1",
    replays.ratios_of_communication,
    cells=[
        {"id": "covap_table1", "model": model, "metric": metric}
        for model in ("ResNet-101", "VGG-19", "Bert")
        for metric in ("T_comm", "T_comp")
    ],
)
PAPER.says(
    "covap_table1",
    "the gain of overlap falls with CCR",
    replays.gain_falls,
)
PAPER.says(
    "covap_table1",
    "the profiler finds an interval of 3 on ResNet-101 and of 4 on the others",
    replays.profiled_interval,
    cells=[
        {"id": "covap_table1", "model": model, "metric": "T_comm"}
        for model in ("ResNet-101", "VGG-19", "Bert")
    ],
)
PAPER.says(
    "covap_table2",
    "Top-k costs the most compression, FP16 the least",
    replays.compression_of_table2,
    cells=[{"id": "covap_table2", "metric": "T_compress"}],
)
PAPER.says(
    "covap_table2",
    "EFsignSGD communicates longer than no compression",
    replays.signs_communicate_longer,
    cells=[{"id": "covap_table2", "method": "EFsignSGD", "metric": "T_comm_minus_T_comm_GC"}],
)
PAPER.says(
    "covap_table3",
    "compression with overlap is near linear once CCR is about 1",
    replays.near_linear,
)
PAPER.says(
    "covap_fig3",
    "without alignment a profile is off by up to 20 %",
    replays.unaligned("covap_fig3", "resnet101"),
)
PAPER.says(
    "covap_fig3",
    "a narrow Bert, 4 workers: likewise",
    replays.unaligned("covap_fig3_packets", replays.NARROW),
    repeats="covap_fig3",
)
PAPER.says(
    "covap_fig4",
    "sharding balances what VGG-19 communicates from step to step",
    replays.balances,
    cells=[],
)
PAPER.says(
    "covap_fig5a",
    "ResNet-101's speed-up is flat beyond a ratio of 3",
    replays.flat_beyond_3,
    cells=[],
)
PAPER.says(
    "covap_fig5bc",
    "the two others are fastest at a ratio of 4",
    replays.fastest_at_4,
    cells=[],
)
PAPER.says(
    "covap_fig5bc",
    "a narrow Bert, 4 workers: a step is shorter up to a ratio of 4, and hardly beyond",
    replays.saturates_at_4,
    repeats="covap_fig5bc",
    cells=[],
)
PAPER.says(
    "covap_table5",
    "the bucket with FC1 takes most of the communication",
    replays.largest_bucket,
)
PAPER.says(
    "covap_fig7-10",
    "COVAP communicates little beside computation",
    replays.hides,
    cells=[],
)
PAPER.says(
    "covap_fig7",
    "Top-k spends several hundred ms on compression, Ok-topk a tenth of it",
    replays.compression_of_figure7,
    cells=[
        {"id": "covap_fig7", "method": method, "metric": "compression_overhead_approx"}
        for method in ("Top-k", "Ok-topk")
    ],
)
PAPER.says(
    "covap_fig7",
    "PowerSGD: 20 ms of communication and 10 of compression",
    replays.power_of_figure7,
    cells=[
        {"id": "covap_fig7", "method": "PowerSGD", "metric": metric}
        for metric in ("communication_overhead", "compression_overhead")
    ],
)
PAPER.says(
    "covap_table7",
    "COVAP is the fastest on all four models",
    replays.fastest_of_all,
)
PAPER.says(
    "covap_table7",
    "FP16 is second on ResNet-101, PowerSGD on the others",
    replays.second,
)
PAPER.says(
    "covap_fig11a",
    "COVAP stays within 5 % of linear on ResNet-101",
    replays.COVAP_BELOW,
)
PAPER.says(
    "covap_fig11a",
    "PowerSGD is 30 % below linear",
    replays.POWER_BELOW,
)
PAPER.says(
    "covap_fig11a",
    "with 8 times the GPUs methods that gather grow less than half as much",
    replays.gathers_grow_little,
)
for model in trained.STAND_INS:
    PAPER.says(
        "covap_fig6",
        f"{model}: COVAP is the first to reach the target",
        trained.is_first(model),
        regime=trained.REGIMES[model],
        cells=[],
    )
    of_model = partial(trained.of_model, model=model)
    share = model == trained.PERPLEXITY
    PAPER.says(
        "covap_table7",
        f"{model}: COVAP's inverse perplexity is within 0.27 % of that without compression"
        if share
        else f"{model}: COVAP's accuracy is within 0.2 points of that without compression",
        trained.is_close(of_model, share),
        cells=[
            {"id": "covap_table7", "model": model, "method": method, "metric": "accuracy"}
            for method in ("DDPovlp", "COVAP")
            if model not in trained.OF_TEXT
        ],
    )
NETS: dict[str, Callable[[Runs], Group]] = {
    "ResNet-101": partial(trained.of_model, model="ResNet-101"),
    "ResNet-101 itself": trained.itself,
}
PAPER.says(
    "covap_table7",
    "ResNet-101 itself: COVAP's accuracy is within 0.2 points of that without compression",
    trained.is_close(trained.itself),
    regime=trained.REGIMES["ResNet-101"],
    repeats="covap_table7",
    cells=[],
)
for other, name in ((trained.PLAIN, "plain"), (trained.WITHOUT, "no")):
    for said, of in NETS.items():
        PAPER.says(
            "covap_table7",
            f"{said}: with its scheduler COVAP ends more accurate than with {name} error feedback",
            trained.scheduler_is_better(other, of),
            ours=True,
            cells=[],
        )
for rate in trained.SWEPT:
    PAPER.says(
        "covap_table7",
        f"ResNet-101, learning rate {rate}: likewise than with plain error feedback",
        trained.scheduler_is_better(trained.PLAIN, trained.of_rate(rate)),
        ours=True,
        cells=[],
    )
BRIEF: dict[str, tuple[Callable[[Runs], Group], bool]] = {  # runs, True if of a perplexity
    f"ResNet-101, learning rate {rate}": (trained.of_rate(rate), False) for rate in trained.SWEPT
} | {
    model: (partial(trained.of_model, model=model), model == trained.PERPLEXITY)
    for model in trained.OF_TEXT
}
for said, (of, share) in BRIEF.items():
    what = "inverse perplexity is within 0.27 %" if share else "accuracy is within 0.2 points"
    PAPER.says(
        "covap_table7",
        f"{said}: with a scheduler over as small a part of all steps as the paper's COVAP's {what} "
        "of that without compression",
        trained.is_close(of, share, trained.SHORT),
        ours=True,
        cells=[],
    )
