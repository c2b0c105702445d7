"""Time series of one run from the tables of `analysis.load`: throughput, goodput and density."""

import numpy as np
import pandas as pd

RUNNING_STEPS = 50  # longest running average
RUNNING_SHARE = 0.1  # share of the run's steps, if that is fewer


def throughput(steps: pd.DataFrame, window_s: float | None = None) -> pd.DataFrame:
    """Return time_s and throughput of one run: samples/s of all workers over the last `window_s`.

    `window_s` defaults to a fiftieth of the run, but at least three mean steps.
    """
    return _rate(steps, steps.groupby("step").samples.sum(), "throughput", window_s)


def goodput(steps: pd.DataFrame, window_s: float | None = None) -> pd.DataFrame:
    """Return time_s and goodput_mbit, received by a worker over `window_s` as in `throughput`."""
    received = steps.groupby("step").received_bytes.mean() * 8 / 1e6
    return _rate(steps, received, "goodput_mbit", window_s)


def _rate(
    steps: pd.DataFrame, amounts: pd.Series, name: str, window_s: float | None
) -> pd.DataFrame:
    """Return the rate of `amounts`, one per step, over a window before the end of every step."""
    ends = np.concatenate([[0.0], steps.groupby("step").time_s.max()])
    whole = np.concatenate([[0.0], amounts.cumsum()])
    window_s = window_s or max(ends[-1] / 50, 3 * float(np.diff(ends).mean()))
    times = ends[ends >= window_s]
    gained = np.interp(times, ends, whole) - np.interp(times - window_s, ends, whole)
    return pd.DataFrame({"time_s": times, name: gained / window_s})


def sent_density(steps: pd.DataFrame) -> pd.Series:
    """Return the share of gradient entries that each row sent; NaN if it sent nothing.

    It is the requested density if the compressor does not count entries.
    """
    return steps.achieved_density.fillna(steps.density)


def density(steps: pd.DataFrame) -> pd.DataFrame:
    """Return time_s and density of every step that sent something, mean over workers."""
    by_step = steps.assign(density=sent_density(steps)).groupby("step")
    table = pd.DataFrame({"time_s": by_step.time_s.max(), "density": by_step.density.mean()})
    return table.dropna(subset="density")


def planned_rate(links: pd.DataFrame) -> pd.DataFrame:
    """Return time_s and planned_mbit of the slowest link at every sample."""
    table = links.pivot_table(index="time_s", columns="link", values="planned_mbit")
    return table.ffill().min(axis=1).rename("planned_mbit").reset_index()


def running_goodput(steps: pd.DataFrame) -> pd.DataFrame:
    """Return step, time_s, goodput_mbit: Mbit/s that a worker received while it communicated.

    It is a running average over the last `RUNNING_STEPS` exchanges, or a tenth of the run if that
    is shorter, weighted by time.
    """
    by_step = steps.groupby("step")
    window = max(1, min(RUNNING_STEPS, round(RUNNING_SHARE * len(by_step))))
    bits = 8 * by_step.received_bytes.mean().rolling(window, min_periods=1).sum()
    spent_s = by_step.comm_s.mean().rolling(window, min_periods=1).sum()
    table = pd.DataFrame({"time_s": by_step.time_s.max(), "goodput_mbit": bits / spent_s / 1e6})
    return table.replace([np.inf, -np.inf], np.nan).reset_index()


def by_step(steps: pd.DataFrame) -> pd.DataFrame:
    """Return step, density (sent, mean over workers) and throughput (samples/s) of every step."""
    groups = steps.assign(density=sent_density(steps)).groupby("step")
    took_s = groups.time_s.max().diff().fillna(groups.time_s.max().iloc[0])
    table = pd.DataFrame(
        {"density": groups.density.mean(), "throughput": groups.samples.sum() / took_s}
    )
    return table.reset_index()
