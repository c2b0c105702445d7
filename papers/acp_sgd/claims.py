"""Decide ACP-SGD's claims (Zhang et al., 2023) from the run directories of its experiments."""

from statistics import fmean

from harness.reporting.claims import rules
from harness.reporting.claims.base import Found, PaperClaims, Runs, above, all_of, listed, spoken
from harness.reporting.claims.origins import PublishedCell
from papers.acp_sgd import replays, trained

TIMELINES = "acp_fig4"
DENSE, ACP, PACKED, STAR = "allreduce", "acp_sgd", "powersgd_packed", "powersgd_vectors_apart"
MODEL = "ResNet-50"
SLOWER = 1.11  # mean step time of both Power-SGD variants over S-SGD's
HIDDEN = 0.1  # most exposed communication, as a share of computation
PRINTED = ("ResNet-50", "BERT-Large")  # rows of table III in published.csv
ALL_METHODS = ("S-SGD", "Power-SGD", "Power-SGD*", "ACP-SGD")


def table3_cell(model: str, method: str) -> PublishedCell:
    """Return the columns that select one cell of table III."""
    metric = "iteration_time_mean"
    return {"id": "acp_table3", "model": model, "method": method, "metric": metric}


def takes_248_ms(runs: Runs) -> Found:
    """Decide whether ACP-SGD's step on ResNet-50 takes 248 ms, within `rules.FACTOR`."""
    found = 1e3 * runs.of(TIMELINES).mean("iteration_s", ACP)[ACP]
    return Found(rules.is_about(found, 248), f"{found:.4g} ms")


def faster_than_dense(runs: Runs) -> Found:
    """Decide whether S-SGD's step takes 266/248 times ACP-SGD's, as `rules.meets` judges it."""
    found = runs.of(TIMELINES).ratio("iteration_s", DENSE, ACP)
    return Found(rules.meets(found, 266 / 248), f"{spoken(found)} times as long")


def faster_than_power(runs: Runs) -> Found:
    """Decide whether a step of the original Power-SGD takes longer than one of ACP-SGD."""
    found = runs.of(TIMELINES).ratio("iteration_s", PACKED, ACP)
    return Found(above(found), f"{spoken(found)} times as long")


def power_is_slower(runs: Runs) -> Found:
    """Decide whether both Power-SGD variants are slower than S-SGD, about `SLOWER` in the mean."""
    group = runs.of(TIMELINES)
    over = {method: group.ratio("iteration_s", method, DENSE) for method in (PACKED, STAR)}
    mean = fmean(each.mean for each in over.values())
    told = f"times as long: {listed({method: each.mean for method, each in over.items()})}"
    return Found(all_of([*map(above, over.values()), rules.is_about(mean, SLOWER)]), told)


def hides(runs: Runs) -> Found:
    """Decide whether ACP-SGD exposes little communication (`HIDDEN`) and Power-SGD exposes more."""
    group = runs.of(TIMELINES)
    over = {method: group.ratio("exposed_s", method, ACP) for method in (PACKED, STAR)}
    exposed, compute = (group.mean(part, ACP)[ACP] for part in ("exposed_s", "compute_s"))
    told = f"exposed over computation {exposed / compute:.3g}; Power-SGD exposes "
    told += ", ".join(f"{each.mean:.3g}" for each in over.values()) + " times as much"
    return Found(all_of([exposed <= HIDDEN * compute, *map(above, over.values())]), told)


PAPER = PaperClaims("acpsgd", workers=32, controls=trained.CONTROLS)
PAPER.says(
    "acp_table3",
    "ResNet-50: a step of ACP-SGD takes 248 ms",
    takes_248_ms,
    cells=[table3_cell(MODEL, "ACP-SGD")],
)
PAPER.says(
    "acp_table3",
    "ResNet-50: ACP-SGD is faster than S-SGD (266 ms)",
    faster_than_dense,
    cells=[table3_cell(MODEL, method) for method in ("ACP-SGD", "S-SGD")],
)
PAPER.says(
    "acp_table3",
    "ResNet-50: ACP-SGD is faster than Power-SGD (302 ms)",
    faster_than_power,
    cells=[table3_cell(MODEL, method) for method in ("ACP-SGD", "Power-SGD")],
)
PAPER.says(
    "acp_table3_text",
    "ResNet-50: Power-SGD and Power-SGD* are slower than S-SGD, 11 % in the mean",
    power_is_slower,
    cells=[{"id": "acp_table3_text", "model": MODEL, "metric": "slowdown"}],
)
PAPER.says("acp_fig4", "ResNet-50: ACP-SGD hides its communication, Power-SGD does not", hides)
PAPER.says(
    "acp_fig2",
    "Top-k SGD is faster than S-SGD on BERT-Large and usually slower elsewhere",
    replays.top_k_wins_on_bert_large,
)
PAPER.says(
    "acp_fig2",
    "Power-SGD is the best of the three compressors",
    replays.power_is_best,
)
PAPER.says(
    "acp_fig2",
    "Power-SGD beats S-SGD on the BERTs only",
    replays.power_wins_on_berts,
)
PAPER.says(
    "acp_fig3",
    "Top-k communicates at least 7 times less than Sign-SGD",
    replays.top_k_communicates_less,
)
PAPER.says(
    "acp_fig5",
    "factors make 30 points more of the tensors small",
    replays.more_small_tensors,
    cells=[],
)
PAPER.says(
    "acp_table3",
    "ACP-SGD is the fastest on all four models",
    replays.fastest_of_all,
    cells=[table3_cell(model, method) for model in PRINTED for method in ALL_METHODS],
)
PAPER.says(
    "acp_table3",
    "Power-SGD* beats Power-SGD on the ResNets and loses on the BERTs",
    replays.star_wins_on_resnets,
)
PAPER.says(
    "acp_fig8",
    "ACP-SGD scales nearly linearly",
    replays.nearly_linear,
    cells=[],
)
PAPER.says(
    "acp_fig9",
    "wait-free backward makes S-SGD and ACP-SGD faster, by a tenth",
    replays.wait_free_gains,
)
PAPER.says(
    "acp_fig9",
    "it makes Power-SGD slower",
    replays.wait_free_slows_power,
)
PAPER.says(
    "acp_fig9",
    "fusion makes all three faster, Power-SGD the most",
    replays.fusion_gains,
)
for text, decide in (
    ("wait-free backward makes S-SGD and ACP-SGD faster", replays.narrow_wait_free_gains),
    ("it makes Power-SGD slower", replays.narrow_wait_free_slows_power),
    ("fusion makes all three faster", replays.narrow_fusion_gains),
):
    said = f"a narrow BERT-Base, 4 workers: {text}"
    PAPER.says("acp_fig9", said, decide, repeats="acp_fig9", cells=[])
PAPER.says(
    "acp_fig10",
    "a buffer of 25 MB is near the best, for rank 32 and 256",
    replays.near_best,
)
PAPER.says(
    "acp_fig10",
    "ACP-SGD is faster than Power-SGD with any buffer",
    replays.before_power_at_any,
)
PAPER.says(
    "acp_fig11a",
    "ACP-SGD's lead over S-SGD shrinks with the batch",
    replays.lead_shrinks,
    cells=[
        {"id": "acp_fig11a", "method": f"ACP vs S-SGD bs={batch}", "metric": "speedup"}
        for batch in (16, 32)
    ],
)
PAPER.says(
    "acp_fig11b",
    "its lead over Power-SGD grows with the rank",
    replays.lead_grows,
)
PAPER.says(
    "acp_fig12",
    "from 8 to 64 GPUs Power-SGD slows down most, ACP-SGD least",
    replays.power_slows_most,
)
PAPER.says(
    "acp_fig13",
    "at 1 Gbit/s compression gains 5 to 24 times, ACP-SGD the most",
    replays.gains_at_1_gbit,
)
PAPER.says(
    "acp_fig13",
    "over 100 Gbit/s ACP-SGD still gains, about 40 % on BERT-Base",
    replays.gains_at_100_gbit,
)
for gbit, mbit in ((4, 62.5), (10, 156.25), (40, 625)):
    PAPER.says(
        "acp_fig13",
        f"a narrow BERT-Base, 4 workers: ACP-SGD is the fastest over {gbit} Gbit/s, scaled",
        replays.narrow_gains(mbit),
        repeats="acp_fig13",
        cells=[],
    )
for experiment, models in trained.MODELS.items():
    own = experiment == trained.ON_A_GPU  # the paper's networks instead of stand-ins
    for model in models:
        said = f"{model} itself" if own else model
        for rival, name in ((trained.DENSE, "S-SGD"), (trained.POWER, "Power-SGD")):
            PAPER.says(
                "acp_fig6",
                f"{said}: ACP-SGD ends as accurate as {name}",
                trained.ends_as(model, rival, experiment),
                repeats="acp_fig6" if own else "",
                regime=trained.PUBLISHED if own else trained.STAND_IN,
                cells=[],
            )
        for ablated, name in (
            (trained.NO_FEEDBACK, "error feedback"),
            (trained.NO_REUSE, "reuse of the last factor"),
        ):
            PAPER.says(
                "acp_fig7",
                f"{said}: ACP-SGD is worse without {name}",
                trained.loses(model, ablated, experiment),
                repeats="acp_fig7" if own else "",
                cells=[],
            )
