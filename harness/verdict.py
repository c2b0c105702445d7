"""Whether a finished run may be believed, and its final numbers: summary.json."""

import csv
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from harness.records import read_events
from harness.settings import Settings

OVERRUN_STEPS = 0.01  # share of steps that may miss their pace
BYPASS_SHARE = 0.98  # of what the collectives sent has to be seen by the shaper
EXCESS_SHARE = 1.25  # headers, acknowledgements and evaluation stay below
EXCESS_BYTES = 8 << 20  # start-up and evaluation of small models


def summarize(
    run_dir: Path, settings: Settings, proof: dict[str, Any], passed: dict[str, int]
) -> dict[str, Any]:
    """Final metrics, proof of shaping, and the reasons not to believe the run (empty: valid).

    `passed` is the bytes through each link's shaper since step 0.
    """
    steps = _rows(run_dir / "steps.csv")
    ends = [event for event in read_events(run_dir) if event["event"] == "rank_finished"]
    sent = _sent_by_node(steps, settings["workers_per_node"])
    proof = {**proof, "passed_bytes": passed, "sent_bytes_by_node": sent}
    reasons = [
        *_probe_reasons(proof["probe"]),
        *(f"network changed: {problem}" for problem in proof["readback"]),
        *_pace_reasons(ends, settings),
        *_drift_reasons(ends),
    ]
    if settings["workers_per_node"] == 1:
        reasons += _bytes_reasons(sent, passed)
    return {
        "valid": not reasons,
        "reasons": reasons,
        "final": _final(run_dir),
        "time_s": max((float(row["time_s"]) for row in steps), default=0.0),
        "steps": 1 + max((int(row["step"]) for row in steps), default=-1),
        "throughput": _throughput(steps),
        "mean_density": _mean([float(row["density"]) for row in steps]),
        "sent_bytes": sum(int(row["sent_bytes"]) for row in steps),
        "overrun_steps": {event["rank"]: event["overruns"] for event in ends},
        "proof": proof,
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _probe_reasons(probes: list[dict[str, Any]]) -> list[str]:
    return [
        f"link {probe['link']} carried {probe['measured_mbit']:.1f} Mbit/s of payload before "
        f"step 0, expected {probe['expected_mbit']:.1f}"
        for probe in probes
        if not probe["ok"]
    ]


def _pace_reasons(ends: list[dict[str, Any]], settings: Settings) -> list[str]:
    if settings["emulation.compute"] == "measured":
        return []
    worst = max(event["overruns"] for event in ends)
    steps = max(event["steps"] for event in ends)
    if worst <= max(1, OVERRUN_STEPS * steps):
        return []
    return [
        f"{worst} of {steps} steps computed longer than their paced time; raise "
        "emulation.dilation or use fewer workers"
    ]


def _drift_reasons(ends: list[dict[str, Any]]) -> list[str]:
    return ["the ranks' weights differ"] if any(event["drifted"] for event in ends) else []


def _bytes_reasons(sent: dict[int, int], passed: dict[str, int]) -> list[str]:
    reasons = []
    for node, count in sent.items():
        seen = passed[f"up{node}"]
        if seen < BYPASS_SHARE * count:
            reasons.append(
                f"node {node} sent {count} bytes, its shaper saw {seen}: a path around it"
            )
        if seen > EXCESS_SHARE * count + EXCESS_BYTES:
            reasons.append(
                f"node {node} sent {count} bytes, its shaper saw {seen}: other traffic shared it"
            )
    return reasons


def _sent_by_node(steps: list[dict[str, str]], workers_per_node: int) -> dict[int, int]:
    sent: dict[int, int] = defaultdict(int)
    for row in steps:
        sent[int(row["rank"]) // workers_per_node] += int(row["sent_bytes"])
    return dict(sent)


def _final(run_dir: Path) -> dict[str, float]:
    return {
        row["metric"]: float(row["value"]) for row in _rows(run_dir / "evaluations.csv")
    }  # the last of each metric


def _throughput(steps: list[dict[str, str]]) -> float | None:
    """Samples per second of all ranks from step 0 to the last."""
    time_s = max((float(row["time_s"]) for row in steps), default=0.0)
    return sum(int(row["samples"]) for row in steps) / time_s if time_s else None


def _mean(values: list[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None
