"""Whether a finished run may be believed, and its final numbers: summary.json."""

import csv
from collections import defaultdict
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from harness.config.run import Run
from harness.emulation.shaping import Shaping
from harness.records.run_directory import read_events
from harness.runner import delivery, doubts, passage

OVERRUN_STEPS = 0.01  # share of steps that may miss their pace


def summarize(
    run_dir: Path, run: Run, proof: dict[str, Any], passed: dict[str, int]
) -> dict[str, Any]:
    """Final metrics, proof of shaping, and the reasons not to believe the run (empty: valid).

    `passed` is the bytes through each link's shaper since step 0.
    """
    steps, events = _rows(run_dir / "steps.csv"), read_events(run_dir)
    ends = [event for event in events if event["event"] == "rank_finished"]
    in_ring = run.parallel.ranks == 1 and not run.parallel.servers
    carried = passage.payload(steps, run.workers_per_node, ends, in_ring)
    time_s = max((float(row["time_s"]) for row in steps), default=0.0)
    took_s = max(0.0, time_s - _began_s(events))
    loss = run.profile.extremes().loss
    proof = {
        **proof,
        "passed_bytes": passed,
        "sent_bytes_by_node": carried.sent,
        "received_bytes_by_node": carried.received,
    }
    rows, more = _by_link(run_dir), _excess(run_dir, run, events)
    delivered = _delivered(run_dir, run, events, rows)
    proof["delivery"] = delivered._asdict()
    proof["pauses"] = sum(event["event"] == "rank_paused" for event in events)
    reasons = [
        *_network_reasons(run, proof, events, rows, took_s),
        *doubts.of_delivery(proof["delivery"]),
        *passage.doubts(carried, proof["flows"], passed, run.workers_per_node, loss, more),
        *doubts.of_pauses(events, steps),
        *doubts.of_outliers(steps, run.emulation.dilation),
        *_pace_reasons(ends, run),
        *_drift_reasons(ends),
        *(f"rank {e['rank']} {e['how']}" for e in events if e["event"] == "trainer_lost"),
    ]
    return _summary(run_dir, events, reasons, proof)


def summarize_simulated(run_dir: Path) -> dict[str, Any]:
    """Summarize a run in virtual time, which has no network to prove and no pace to miss."""
    events = read_events(run_dir)
    ends = [event for event in events if event["event"] == "rank_finished"]
    return {"simulated": True} | _summary(run_dir, events, _drift_reasons(ends), {})


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
        rows = csv.reader(file)
        header = next(rows)
        asked = [header.index(name) for name in ("time_s", "step", "samples", "sent_bytes")]
        at_time, at_step, at_samples, at_sent = asked
        at_density = header.index("density")
        for row in rows:
            time_s = max(time_s, float(row[at_time]))
            steps = max(steps, int(row[at_step]) + 1)
            samples += int(row[at_samples])
            sent += int(row[at_sent])
            if isfinite(this := float(row[at_density])):
                density, dense = density + this, dense + 1
    return Totals(time_s, steps, samples, sent, density / dense if dense else None)


def _summary(
    run_dir: Path,
    events: list[dict],
    reasons: list[str],
    proof: dict[str, Any],
) -> dict[str, Any]:
    ends = [event for event in events if event["event"] == "rank_finished"]
    found = _totals(run_dir / "steps.csv")
    took_s = found.time_s - _began_s(events)
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


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _by_link(run_dir: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of links.csv, in order of time, by link."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _rows(run_dir / "links.csv"):
        found[row["link"]].append(row)
    return found


def _delivered(
    run_dir: Path, run: Run, events: list[dict], rows: dict[str, list[dict[str, str]]]
) -> delivery.Delivery:
    """Judge delivery for runs that exchange gradients alone; other traffic is in no collective."""
    profile, in_ring = run.profile, run.parallel.ranks == 1 and not run.parallel.servers
    assert isinstance(run.network, Shaping)
    if not in_ring or run.nodes < 2:
        return delivery.Delivery(0.0)
    delayed, flows = run.network.needs_netem(profile), bool(profile.extremes().flows)
    table, dilation = run_dir / "collectives.csv", run.emulation.dilation
    return delivery.judged(table, events, rows, dilation, (not delayed, not flows))


def _excess(run_dir: Path, run: Run, events: list[dict]) -> passage.Excess:
    """Allowance for unaccounted bytes, by the number of collectives of each rank."""
    table, ranks = run_dir / "collectives.csv", run.workers
    with table.open() if table.exists() else nullcontext(()) as lines:
        collectives = max(0, sum(1 for _ in lines) - 1) // ranks
    saved = sum(event["event"] == "checkpoint" for event in events)
    return passage.excess(collectives, ranks, saved + len(_rows(run_dir / "evaluations.csv")))


def _network_reasons(
    run: Run,
    proof: dict[str, Any],
    events: list[dict],
    rows: dict[str, list[dict[str, str]]],
    took_s: float,
) -> list[str]:
    audit, dilation = proof["audit"], run.emulation.dilation
    probed = [name for probe in proof["probe"] for name in doubts.names(probe)]
    expected = took_s * dilation / run.network.sample_s
    return [
        *doubts.of_probes(proof["probe"], rows),
        *doubts.of_round_trips(proof["round_trips"]),
        *doubts.of_host(proof["ceiling"], audit, not run.emulation.is_measured),
        *doubts.of_plan(audit, events, run.network.update_s),
        *doubts.of_changes(events),
        *doubts.of_samples(rows, probed, expected, run.network.sample_s, dilation),
        *doubts.of_flows(events, dilation),
        *(f"network changed: {problem}" for problem in proof["readback"]),
    ]


def _pace_reasons(ends: list[dict[str, Any]], run: Run) -> list[str]:
    if run.emulation.is_measured:
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


def _final(run_dir: Path) -> dict[str, float]:
    return {
        row["metric"]: float(row["value"]) for row in _rows(run_dir / "evaluations.csv")
    }  # the last of each metric


def _began_s(events: list[dict]) -> float:
    """Time on the clock at which this run began: 0, or where a checkpoint left off."""
    return max((event["time_s"] for event in events if event["event"] == "step_0"), default=0.0)
