"""summary.json: the final numbers of a finished run, from the rows and events that it left."""

import csv
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple


def of(
    run_dir: Path,
    events: list[dict],
    reasons: list[str],
    proof: dict[str, Any],
) -> dict[str, Any]:
    """Sum up a finished run: `reasons` not to believe it, and what its network `proof` has."""
    ends = [event for event in events if event["event"] == "rank_finished"]
    found = _totals(run_dir / "steps.csv")
    took_s = found.time_s - began_s(events)
    return {
        "valid": not reasons,
        "reasons": reasons,
        "final": _final(run_dir),
        "time_s": found.time_s,
        "steps": found.steps,
        "throughput": found.samples / took_s if took_s > 0 else None,
        "mean_density": found.mean_density,
        "sent_bytes": found.sent_bytes,
        "server": next((e for e in events if e["event"] == "server_finished"), None),
        "overrun_steps": {event["rank"]: event["overruns"] for event in ends},
        "proof": proof,
    }


class Totals(NamedTuple):
    """Totals over all rows of steps.csv."""

    time_s: float = 0.0
    steps: int = 0
    samples: int = 0
    sent_bytes: int = 0
    mean_density: float | None = None


def _totals(path: Path) -> Totals:
    """Sum up steps.csv at `path` row by row: there may be more than memory holds."""
    time_s, steps, samples, sent, density, dense = 0.0, 0, 0, 0, 0.0, 0
    with path.open() as file:
        lines = csv.reader(file)
        header = next(lines)
        asked = [header.index(name) for name in ("time_s", "step", "samples", "sent_bytes")]
        at_time, at_step, at_samples, at_sent = asked
        at_density = header.index("density")
        for row in lines:
            time_s = max(time_s, float(row[at_time]))
            steps = max(steps, int(row[at_step]) + 1)
            samples += int(row[at_samples])
            sent += int(row[at_sent])
            if isfinite(this := float(row[at_density])):
                density, dense = density + this, dense + 1
    return Totals(time_s, steps, samples, sent, density / dense if dense else None)


def rows(path: Path) -> list[dict[str, str]]:
    """Rows of a table, all of them at once."""
    with path.open() as file:
        return list(csv.DictReader(file))


def drift_reasons(ends: list[dict[str, Any]]) -> list[str]:
    """Say if ranks ended with weights that differ; `ends` are the events of their ends."""
    return ["the ranks' weights differ"] if any(event["drifted"] for event in ends) else []


def _final(run_dir: Path) -> dict[str, float]:
    return {
        row["metric"]: float(row["value"]) for row in rows(run_dir / "evaluations.csv")
    }  # the last of each metric


def began_s(events: list[dict]) -> float:
    """Time on the clock at which this run began: 0, or where a checkpoint left off."""
    return max((event["time_s"] for event in events if event["event"] == "step_0"), default=0.0)
