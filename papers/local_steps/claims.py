"""Decide claims on local steps from replays at true size, from training, or by arithmetic.

The published grid was measured on four L40S over NCCL, shaped by tbf. published.csv has its rows,
README.md their sources. Margins that are not published are constants here, fixed before any run.
"""

import json
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from harness.reporting.claims.base import Found, Group, PaperClaims, Runs, below, listed

GRID, PEAK = "local_steps_utilisation", "local_steps_peak"
RATES = (50.0, 200.0, 1000.0, 5000.0, 20_000.0, 100_000.0, 1_000_000.0)  # Mbit/s
NEEDED = (0.5, 0.75, 0.9, 0.95)  # utilisations whose required rate is reported
APART = 0.1  # largest median relative error of predicted utilisations
LIKE = 0.1  # relative tolerance of "about as large"
LOSS = 1.01  # ratio of final losses below which a method costs less than 1 %
SPLIT = (1, 2, 4, 8)  # fragments
TERA, GIGA, HOUR_S = 1e12, 1e9, 3600
TRAINED = {"local_steps_images": 8.0, "local_steps_text": 250.0}  # Mbit/s of the runs to compare
OWN_RATE = 0.02  # SparseLoCo's inner learning rate on images
FEWER = 100  # factor by which SparseLoCo reduces DiLoCo's bytes


@cache
def published() -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name("published.csv"))


def printed(id: str, **columns: str) -> pd.Series:
    """Return published values, by metric, of the rows with this `id` and these `columns`."""
    rows = published()[published().id == id]
    for column, value in columns.items():
        rows = rows[rows[column] == value]
    return rows.set_index("metric").value.astype(float)


def steps_of(method: str) -> int | None:
    """Return H of a published method name; None for ddp, which exchanges gradients in buckets."""
    name, _, steps = method.partition(" H=")
    return None if name == "ddp" else int(steps)


def utilisation(runs: Runs, rate: float, steps: int | None) -> float:
    """Return the share of a step that is computation; `steps` is H, None for all-reduce."""
    group = runs.of(GRID, profile__rate_mbit=rate, optimizer__kind="adamw" if steps else "sgd")
    method = "allreduce" if steps is None else f"diloco_h={steps}"
    parts = [group.mean(part, method)[method] for part in ("compute_s", "iteration_s")]
    return parts[0] / parts[1]


def near_the_grid(runs: Runs) -> Found:
    """Decide whether replays have the published utilisations, within `APART` in the median."""
    rows = published()[
        (published().id == "dm_cu_grid") & (published().metric == "compute_utilisation")
    ]
    errors: dict[str, float] = {}
    for row in rows.itertuples():
        found = utilisation(runs, float(str(row.network).split()[0]), steps_of(str(row.method)))
        errors[f"{row.method}, {row.network}"] = abs(found / float(str(row.value)) - 1)
    worst = max(errors, key=lambda key: errors[key])
    told = f"median error {median(errors.values()):.1%} of {len(errors)} cells"
    return Found(median(errors.values()) <= APART, f"{told}; worst {errors[worst]:.0%}, {worst}")


def needed_mbit(runs: Runs, steps: int, wanted: float) -> float:
    """Return the rate in Mbit/s at which workers compute for a share `wanted` of the time.

    It interpolates the grid: exchange time over compute time is linear in 1/rate. Return inf if the
    highest rate is not enough.
    """
    over = [1 / utilisation(runs, rate, steps) - 1 for rate in RATES]
    most = 1 / wanted - 1
    if over[-1] > most:
        return inf
    return float(1 / np.interp(most, over[::-1], [1 / rate for rate in RATES[::-1]]))


def needs_a_share_of_the_rate(runs: Runs) -> Found:
    one, many = (needed_mbit(runs, steps, 0.5) for steps in (1, 32))
    share = one / many
    told = f"{one:,.0f} and {many:,.0f} Mbit/s for a half: 1/{share:.3g}"
    return Found(abs(share / 32 - 1) <= LIKE, told)


def needed(runs: Runs) -> Found:
    """Decide whether more local steps need a lower rate at every utilisation of `NEEDED`."""
    found = {h: [needed_mbit(runs, h, each) for each in NEEDED] for h in (1, 8, 32, 128)}
    falls = all(a > b for more, less in zip(list(found.values())[:-1], list(found.values())[1:],
                strict=True) for a, b in zip(more, less, strict=True) if a < inf)  # fmt: skip
    told = (f"H={h}: " + ", ".join(f"{each:,.0f}" for each in rates) for h, rates in found.items())
    return Found(falls, "; ".join(told) + " Mbit/s for 50, 75, 90, 95 %")


def peak_falls(runs: Runs) -> Found:
    """Decide whether the peak rate over a second falls as 1/fragments, within `LIKE`."""
    group = runs.of(PEAK)
    peaks: dict[str, float] = {}
    for fragments in SPLIT:
        rows = group.rows(group.method(**_fragments(group, fragments)))
        told = [json.loads((Path(path) / "summary.json").read_text()) for path in rows.path]
        peaks[str(fragments)] = float(np.mean([each["peak_mbit"] for each in told]))
    shares = [peaks["1"] / peaks[str(fragments)] / fragments for fragments in SPLIT]
    holds = all(abs(each - 1) <= LIKE for each in shares)
    return Found(holds, f"Mbit/s by fragments: {listed(peaks)}")


def _fragments(group: Group, fragments: int) -> dict[str, str]:
    names = set(group.rows().method)
    more = f"_fragments={fragments}" if fragments > 1 else ""
    found = [name for name in names if (more in name if more else "fragments" not in name)]
    return {"method": found[0] if len(found) == 1 else f"fragments {fragments}"}


def overlap_costs_little(experiment: str) -> Callable[[Runs], Found]:
    """Return the rule that fragments that lag end below `LOSS` times DiLoCo's loss, at equal H."""

    def decide(runs: Runs) -> Found:
        group = _at_one_rate(runs, experiment, "diloco_h=32")
        streaming = [each for each in set(group.rows().method) if "streaming" in each]
        found = group.ratio("loss_left", streaming[0], "diloco_h=32")
        return Found(below(found, LOSS), f"{found.mean:.4g} times the loss")

    return decide


def codec_costs_little(experiment: str) -> Callable[[Runs], Found]:
    """Return the rule that SparseLoCo ends below `LOSS` times DiLoCo's loss, with few bytes.

    Few is about 1/`FEWER` of DiLoCo's. SparseLoCo has its own inner learning rate, so its runs are
    a separate group.
    """

    def decide(runs: Runs) -> Found:
        over, under = "sparseloco_0.015625_h=32", "diloco_h=32"
        sparse, dense = (_at_one_rate(runs, experiment, each) for each in (over, under))
        rows = pd.concat([sparse.rows(over), dense.rows(under)]).drop_duplicates("run_id")
        dense.seen.columns.add("loss_left")
        found = dense.paired(rows, "loss_left", over, under)
        share = _sent_bytes(sparse, over) / _sent_bytes(dense, under)
        few = share <= (1 + LIKE) / FEWER
        holds = below(found, LOSS) if few else False
        return Found(holds, f"{found.mean:.4g} times the loss with 1/{1 / share:.3g} of the bytes")

    return decide


def _at_one_rate(runs: Runs, experiment: str, method: str) -> Group:
    """Return the runs with `method` at one rate; trained weights are the same at every rate."""
    kind = runs.of(experiment, profile__rate_mbit=TRAINED[experiment])
    if method in set(kind.rows().method):
        return kind
    return runs.of(experiment, profile__rate_mbit=TRAINED[experiment], optimizer__lr=OWN_RATE)


def _sent_bytes(group: Group, method: str) -> float:
    return sum(float(each.sent_bytes.sum()) for each in group.steps(method)[method])


def wire_time(runs: Runs) -> Found:
    told = printed("wire_time_text")
    bits = told["parameters"] * GIGA * told["bits_per_parameter"]
    up_s = bits / (told["uplink"] * 1e6)
    down_s = told["peers"] * bits / (told["downlink"] * 1e6)
    fits = max(up_s, down_s) <= told["communication_time"]
    return Found(fits, f"{up_s:.0f} s up, {down_s:.0f} s down")


def column_rate(runs: Runs) -> Found:
    told = printed("rate_column")
    rate = 8 * told["traffic"] * TERA / (told["time"] * HOUR_S) / GIGA
    return Found(abs(rate / told["rate"] - 1) <= LIKE, f"{rate:.3g} Gbit/s")


PAPER = PaperClaims("local_steps", workers=4)
PAPER.says("dm_cu_grid", "replays have the utilisation of four L40S, within 10 % in the median",
           near_the_grid, ours=True)  # fmt: skip
PAPER.says("local_steps_rate", "H = 32 needs about 1/32 of the rate for equal utilisation",
           needs_a_share_of_the_rate)  # fmt: skip
PAPER.says("local_steps_rate", "more local steps need a lower rate, at every utilisation", needed,
           ours=True)  # fmt: skip
PAPER.says("local_steps_peak", "the peak rate falls as one over the fragments", peak_falls)
PAPER.says("wire_time_text", "a round of 72.7 B parameters is sent and received in 70 s", wire_time,
           by_construction="it is arithmetic of what is printed")  # fmt: skip
PAPER.says("rate_column", "441 TB in 109 h are sent at 1 Gbit/s", column_rate,
           by_construction="it is arithmetic of what is printed")  # fmt: skip
for experiment in TRAINED:
    PAPER.says(experiment, "fragments that lag cost less than 1 % of the loss",
               overlap_costs_little(experiment))  # fmt: skip
    PAPER.says(experiment, "chunks of few bits cost less than 1 % of DiLoCo's loss, with a "
               "hundredth of its bytes", codec_costs_little(experiment))  # fmt: skip
