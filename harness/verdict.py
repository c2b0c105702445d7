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
LEAST_HEADROOM = 2.0  # what the machine carries unshaped, over what the links may ask for
CARRIED_SHARE = 1.02  # of what a shaper's rates add up to
OFF_PLAN_SHARE = 0.01  # of the samples of links
LEAST_IDLE_SHARE = 0.02  # of the processors, when computation is paced


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
        *_round_trip_reasons(proof["round_trips"]),
        *_host_reasons(proof["ceiling"], proof["audit"], settings),
        *_audit_reasons(proof["audit"], settings),
        *(f"network changed: {problem}" for problem in proof["readback"]),
        *_pace_reasons(ends, settings),
        *_drift_reasons(ends),
    ]
    if settings["workers_per_node"] == 1:
        reasons += _bytes_reasons(sent, _cross_bytes(proof["flows"]), passed)
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


def _round_trip_reasons(trips: list[dict[str, Any]]) -> list[str]:
    return [
        f"round trip {trip['name']} took {trip['measured_ms']} ms before step 0, "
        f"expected {trip['planned_ms']}"
        for trip in trips
        if not trip["ok"]
    ]


def _host_reasons(ceiling: dict[str, Any], audit: dict[str, Any], settings: Settings) -> list[str]:
    """What shows that this machine was the bottleneck, not the network."""
    reasons = []
    needed, carried = ceiling["needed_mbit"], ceiling["carried_mbit"]
    if carried is not None and carried < LEAST_HEADROOM * needed:
        reasons.append(
            f"with open shapers this machine carries {carried:.0f} Mbit/s, less than "
            f"{LEAST_HEADROOM:g} x the {needed:.0f} its links may ask for; raise emulation.dilation"
        )
    idle = audit["cpu_idle_share"]
    paced = settings["emulation.compute"] != "measured"
    if paced and idle is not None and idle < LEAST_IDLE_SHARE:
        reasons.append(
            f"the processors were idle for {idle:.1%} of the run, less than "
            f"{LEAST_IDLE_SHARE:.0%}; raise emulation.dilation or use fewer workers"
        )
    return reasons


def _audit_reasons(audit: dict[str, Any], settings: Settings) -> list[str]:
    """What shows that the links did not follow the plan."""
    reasons = []
    if audit["carried_over_allowed"] is not None and audit["carried_over_allowed"] > CARRIED_SHARE:
        over = audit["carried_over_allowed"]
        reasons.append(f"a link carried {over:.3f} x what its shaper should have let through")
    if (audit["off_plan_share"] or 0.0) > OFF_PLAN_SHARE:
        share = audit["off_plan_share"]
        reasons.append(f"{share:.1%} of the link samples were not at their planned rate")
    period_ms = settings["network.update_s"] * 1000
    if (audit["late_ms_p99"] or 0.0) > period_ms:
        reasons.append(
            f"conditions came {audit['late_ms_p99']:.0f} ms late (99 %), more than "
            f"network.update_s = {period_ms:.0f} ms; raise it or use fewer nodes"
        )
    return reasons


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


def _cross_bytes(flows: list[dict[str, Any]]) -> dict[int, int]:
    """What competing flows sent from each node; those of a trunk come from hosts of their own."""
    sent: dict[int, int] = defaultdict(int)
    for flow in flows:
        sender = flow["pair"].partition("-")[0]
        if sender.isdigit():
            sent[int(sender)] += flow["sent_bytes"]
    return sent


def _bytes_reasons(
    sent: dict[int, int], cross: dict[int, int], passed: dict[str, int]
) -> list[str]:
    reasons = []
    for node in sent:
        count = sent[node] + cross.get(node, 0)
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
