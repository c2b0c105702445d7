"""What a run did from step to step: pure functions of tables of `reporting.analysis.load`."""

import numpy as np
import pandas as pd

RUNNING_STEPS = 50  # of a running average, at most
RUNNING_SHARE = 0.1  # of the run's steps, where that is fewer


def throughput(steps: pd.DataFrame, window_s: float | None = None) -> pd.DataFrame:
    """time_s, throughput of one run: samples/s of all workers over the `window_s` before.

    Without `window_s`: a fiftieth of the run, at least three mean steps.
    """
    return _rate(steps, steps.groupby("step").samples.sum(), "throughput", window_s)


def goodput(steps: pd.DataFrame, window_s: float | None = None) -> pd.DataFrame:
    """time_s, goodput_mbit of one run: bits received by a worker in the window before, over it.

    Windows are those of `throughput`.
    """
    received = steps.groupby("step").received_bytes.mean() * 8 / 1e6
    return _rate(steps, received, "goodput_mbit", window_s)


def _rate(
    steps: pd.DataFrame, amounts: pd.Series, name: str, window_s: float | None
) -> pd.DataFrame:
    """`amounts`, of each step, as a rate at the end of every step."""
    ends = np.concatenate([[0.0], steps.groupby("step").time_s.max()])
    whole = np.concatenate([[0.0], amounts.cumsum()])
    window_s = window_s or max(ends[-1] / 50, 3 * float(np.diff(ends).mean()))
    times = ends[ends >= window_s]
    gained = np.interp(times, ends, whole) - np.interp(times - window_s, ends, whole)
    return pd.DataFrame({"time_s": times, name: gained / window_s})


def sent_density(steps: pd.DataFrame) -> pd.Series:
    """Return the share of gradient entries that each row sent; nan where it sent nothing.

    It is what was asked for, where a compressor counts none.
    """
    return steps.achieved_density.fillna(steps.density)


def density(steps: pd.DataFrame) -> pd.DataFrame:
    """Return time_s, density of every step that sent something, mean over workers."""
    by_step = steps.assign(density=sent_density(steps)).groupby("step")
    table = pd.DataFrame({"time_s": by_step.time_s.max(), "density": by_step.density.mean()})
    return table.dropna(subset="density")


def planned_rate(links: pd.DataFrame) -> pd.DataFrame:
    """time_s, planned_mbit of the slowest link, at every sample."""
    table = links.pivot_table(index="time_s", columns="link", values="planned_mbit")
    return table.ffill().min(axis=1).rename("planned_mbit").reset_index()


def running_goodput(steps: pd.DataFrame) -> pd.DataFrame:
    """step, time_s, goodput_mbit of one run: bits a worker received while it communicated.

    A running average over the last `RUNNING_STEPS` exchanges, or a tenth of the run's;
    weighted by their time.
    """
    by_step = steps.groupby("step")
    window = max(1, min(RUNNING_STEPS, round(RUNNING_SHARE * len(by_step))))
    bits = 8 * by_step.received_bytes.mean().rolling(window, min_periods=1).sum()
    spent_s = by_step.comm_s.mean().rolling(window, min_periods=1).sum()
    table = pd.DataFrame({"time_s": by_step.time_s.max(), "goodput_mbit": bits / spent_s / 1e6})
    return table.replace([np.inf, -np.inf], np.nan).reset_index()


def by_step(steps: pd.DataFrame) -> pd.DataFrame:
    """step, density (as sent, mean over workers) and throughput (samples/s) of every step."""
    groups = steps.assign(density=sent_density(steps)).groupby("step")
    took_s = groups.time_s.max().diff().fillna(groups.time_s.max().iloc[0])
    table = pd.DataFrame(
        {"density": groups.density.mean(), "throughput": groups.samples.sum() / took_s}
    )
    return table.reset_index()
