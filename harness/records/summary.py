"""summary.json: the final numbers of a finished run, from its rows and events."""

import csv
from collections import deque
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple


def of(
    run_dir: Path, events: list[dict], reasons: list[str], proof: dict[str, Any]
) -> dict[str, Any]:
    """Summarise a finished run: `reasons` not to believe it, and its network's `proof`."""
    ends = [event for event in events if event["event"] == "rank_finished"]
    found = _totals(run_dir / "steps.csv")
    took_s = found.time_s - began_s(events)
    return {
        "valid": not reasons,
        "grade": "invalid" if reasons else "valid",  # over packets: see harness.runner.lateness
        "reasons": reasons,
        "final": {row["metric"]: float(row["value"]) for row in rows(run_dir / "evaluations.csv")},
        "time_s": found.time_s,
        "steps": found.steps,
        "throughput": found.samples / took_s if took_s > 0 else None,
        "mean_density": found.mean_density,
        "sent_bytes": found.sent_bytes,
        "compute_utilisation": utilisation(found, took_s, len(ends)),
        "peak_mbit": peak_mbit(run_dir / "links.csv"),
        "server": next((e for e in events if e["event"] == "server_finished"), None),
        "overrun_steps": {event["rank"]: event["overruns"] for event in ends},
        "proof": proof,
    }


PEAK_S = 1.0  # over which a peak rate is a mean
BYTES_PER_MBIT = 125_000


class Totals(NamedTuple):
    """Totals over all rows of steps.csv."""

    time_s: float = 0.0
    steps: int = 0
    samples: int = 0
    sent_bytes: int = 0
    mean_density: float | None = None  # density sent, mean over rows that sent something
    compute_s: float = 0.0


def _totals(path: Path) -> Totals:
    """Sum steps.csv at `path` row by row, since it may exceed the memory."""
    time_s, steps, samples, sent, density, exchanges, compute_s = 0.0, 0, 0, 0, 0.0, 0, 0.0
    with path.open() as file:
        lines = csv.reader(file)
        header = next(lines)
        asked = [header.index(name) for name in ("time_s", "step", "samples", "sent_bytes")]
        at_time, at_step, at_samples, at_sent = asked
        at_compute = header.index("compute_s")
        at_densities = header.index("achieved_density"), header.index("density")
        for row in lines:
            time_s = max(time_s, float(row[at_time]))
            steps = max(steps, int(row[at_step]) + 1)
            samples += int(row[at_samples])
            sent += int(row[at_sent])
            compute_s += float(row[at_compute])
            known = filter(isfinite, (float(row[place]) for place in at_densities))
            if (this := next(known, None)) is not None:
                density, exchanges = density + this, exchanges + 1
    mean = density / exchanges if exchanges else None
    return Totals(time_s, steps, samples, sent, mean, compute_s)


def utilisation(found: Totals, took_s: float, ranks: int) -> float | None:
    """Return the share of the time of all `ranks` in which they compute."""
    return found.compute_s / (ranks * took_s) if ranks and took_s > 0 else None


def peak_mbit(path: Path) -> float | None:
    """Return the highest rate of any link over PEAK_S or more, or None for too few samples."""
    peak: float | None = None
    before: dict[str, deque[tuple[float, int]]] = {}
    for row in rows(path):
        seen = before.setdefault(row["link"], deque())
        at_s, carried = float(row["time_s"]), int(row["bytes"])
        while len(seen) > 1 and seen[1][0] <= at_s - PEAK_S:
            seen.popleft()
        if seen and at_s - seen[0][0] >= PEAK_S:
            rate = (carried - seen[0][1]) / BYTES_PER_MBIT / (at_s - seen[0][0])
            peak = rate if peak is None else max(peak, rate)
        seen.append((at_s, carried))
    return peak


def rows(path: Path) -> list[dict[str, str]]:
    """Return all rows of a table at once."""
    with path.open() as file:
        return list(csv.DictReader(file))


def drift_reasons(ends: list[dict[str, Any]]) -> list[str]:
    """Say if ranks ended with different weights. `ends` are the events of their ends."""
    return ["the ranks' weights differ"] if any(event["drifted"] for event in ends) else []


def began_s(events: list[dict]) -> float:
    """Return the clock's time at which this run began: 0, or the end of a checkpoint."""
    return max((event["time_s"] for event in events if event["event"] == "step_0"), default=0.0)
