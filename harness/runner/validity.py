"""Whether a finished run may be believed, and its final numbers: summary.json."""

from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

from harness.config.local_steps import LocalSteps
from harness.config.network import NetworkChoice
from harness.config.run import Emulation, Run
from harness.emulation.shaping import Shaping
from harness.records import summary
from harness.records.run_directory import read_events
from harness.runner import byte_audit, delivery, validity_checks

OVERRUN_STEPS = 0.01  # share of steps that may miss their pace


class OnANetwork(Protocol):
    """Run or job over a network, as far as the network's reasons depend on it."""

    @property
    def emulation(self) -> Emulation: ...

    @property
    def network(self) -> NetworkChoice: ...


def summarize(
    run_dir: Path, run: Run, proof: dict[str, Any], passed: dict[str, int]
) -> dict[str, Any]:
    """Final metrics, proof of shaping, and the reasons not to believe the run (empty: valid).

    `passed` is the bytes through each link's shaper since step 0.
    """
    steps, events = summary.rows(run_dir / "steps.csv"), read_events(run_dir)
    ends = [event for event in events if event["event"] == "rank_finished"]
    in_ring = _in_ring(run)
    carried = byte_audit.payload(steps, run.workers_per_node, ends, in_ring)
    time_s = max((float(row["time_s"]) for row in steps), default=0.0)
    took_s = max(0.0, time_s - summary.began_s(events))
    loss = run.profile.extremes().loss
    proof = {
        **proof,
        "passed_bytes": passed,
        "sent_bytes_by_node": carried.sent,
        "received_bytes_by_node": carried.received,
    }
    rows, more = by_link(run_dir), _excess(run_dir, run, events)
    delivered = _delivered(run_dir, run, events, rows)
    proof["delivery"] = delivered._asdict()
    proof["pauses"] = sum(event["event"] == "rank_paused" for event in events)
    reasons = [
        *network_reasons(run, proof, events, rows, took_s),
        *validity_checks.of_delivery(proof["delivery"]),
        *byte_audit.reasons(carried, proof["flows"], passed, run.workers_per_node, loss, more),
        *validity_checks.of_pauses(events, steps),
        *validity_checks.of_outliers(steps, run.emulation.dilation),
        *_pace_reasons(ends, run),
        *summary.drift_reasons(ends),
        *(f"rank {e['rank']} {e['how']}" for e in events if e["event"] == "trainer_lost"),
    ]
    return summary.of(run_dir, events, reasons, proof)


def _in_ring(run: Run) -> bool:
    """Tell whether all traffic is collectives of all workers, each of whom sends to the next."""
    in_pairs = isinstance(run.parallel, LocalSteps) and run.parallel.is_gossip
    return run.parallel.ranks == 1 and not run.parallel.servers and not in_pairs


def by_link(run_dir: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of links.csv, in order of time, by link."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in summary.rows(run_dir / "links.csv"):
        found[row["link"]].append(row)
    return found


def _delivered(
    run_dir: Path, run: Run, events: list[dict], rows: dict[str, list[dict[str, str]]]
) -> delivery.Delivery:
    """Judge delivery for runs that exchange gradients alone; other traffic is in no collective."""
    profile, in_ring = run.profile, _in_ring(run)
    assert isinstance(run.network, Shaping)
    if not in_ring or run.nodes < 2:
        return delivery.Delivery(0.0)
    delayed, flows = run.network.needs_netem(profile), bool(profile.extremes().flows)
    table, dilation = run_dir / "collectives.csv", run.emulation.dilation
    bounded, burst_s = (not delayed, not flows), run.network.longest_burst_s(profile, dilation)
    return delivery.judged(table, events, rows, dilation, bounded, burst_s)


def _excess(run_dir: Path, run: Run, events: list[dict]) -> byte_audit.Excess:
    """Allowance for unaccounted bytes, by the number of collectives of each rank."""
    table, ranks = run_dir / "collectives.csv", run.workers
    with table.open() if table.exists() else nullcontext(()) as lines:
        collectives = max(0, sum(1 for _ in lines) - 1) // ranks
    saved = sum(event["event"] == "checkpoint" for event in events)
    return byte_audit.excess(
        collectives, ranks, saved + len(summary.rows(run_dir / "evaluations.csv"))
    )


def network_reasons(
    run: OnANetwork,
    proof: dict[str, Any],
    events: list[dict],
    rows: dict[str, list[dict[str, str]]],
    took_s: float,
) -> list[str]:
    """Reasons not to believe what links did in `took_s` emulated seconds, from `proof` and rows."""
    audit, dilation = proof["audit"], run.emulation.dilation
    probed = [name for probe in proof["probe"] for name in validity_checks.names(probe)]
    expected = took_s * dilation / run.network.sample_s
    return [
        *validity_checks.of_probes(proof["probe"], rows),
        *validity_checks.of_round_trips(proof["round_trips"]),
        *validity_checks.of_host(proof["ceiling"], audit, not run.emulation.is_measured),
        *validity_checks.of_plan(audit, events, run.network.update_s),
        *validity_checks.of_changes(events),
        *validity_checks.of_samples(rows, probed, expected, run.network.sample_s, dilation),
        *validity_checks.of_flows(events, dilation),
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
