"""List of the checks that a run's validity rests on, and its final numbers: summary.json.

A run is valid if every check in RUN_CHECKS was made and holds. A check that could not be made is a
reason against validity, unless it cannot fail for this run.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, Protocol

from harness.config.keys import Emulation
from harness.config.network import NetworkChoice
from harness.config.run import Run
from harness.emulation.packets import BURST_US
from harness.emulation.shaping import Shaping
from harness.records import summary
from harness.records.run_directory import read_events
from harness.runner import byte_audit, delivery, lateness, validity_checks
from harness.runner.checks import Check, CouldNotCheck, NotNeeded, judge
from harness.runner.lateness import Lateness, Processors

OVERRUN_STEPS = 0.01  # share of steps that may miss their pace
Row = dict[str, str]


class OnANetwork(Protocol):
    """Run or job over a network, as far as the network's reasons depend on it."""

    @property
    def emulation(self) -> Emulation: ...

    @property
    def network(self) -> NetworkChoice: ...


@dataclass(frozen=True)
class NetworkEvidence:
    """The records of a network: its proof, and the events and link samples of the run."""

    run: OnANetwork
    proof: dict[str, Any]
    events: list[dict[str, Any]]
    links: dict[str, list[Row]]  # rows of links.csv, by link
    took_s: float  # emulated

    @property
    def took_real_s(self) -> float:
        """Duration in real seconds."""
        return self.took_s * self.run.emulation.dilation


@dataclass(frozen=True)
class RunEvidence(NetworkEvidence):
    """The records of a training run, with those of its network."""

    run: Run
    run_dir: Path
    steps: list[Row]  # of steps.csv
    carried: byte_audit.Payload
    delivered: delivery.Delivery | CouldNotCheck | NotNeeded
    late: Lateness | None  # None: not counted, or computation is measured

    @property
    def ends(self) -> list[dict[str, Any]]:
        """Events of ranks that finished."""
        return [event for event in self.events if event["event"] == "rank_finished"]


def summarize(
    run_dir: Path, run: Run, proof: dict[str, Any], passed: dict[str, int]
) -> dict[str, Any]:
    """Return the content of summary.json; `passed` has bytes through each shaper since step 0."""
    steps, events = summary.rows(run_dir / "steps.csv"), read_events(run_dir)
    ends = [event for event in events if event["event"] == "rank_finished"]
    carried = byte_audit.payload(steps, run.workers_per_node, ends, run.parallel.in_ring)
    time_s = max((float(row["time_s"]) for row in steps), default=0.0)
    links, took_s = by_link(run_dir), max(0.0, time_s - summary.began_s(events))
    delivered: delivery.Delivery | CouldNotCheck | NotNeeded
    try:
        delivered = _delivered(run_dir, run, events, links, carried)
    except (CouldNotCheck, NotNeeded) as why:
        delivered = why
    proof = {
        **proof,
        "passed_bytes": passed,
        "sent_bytes_by_node": carried.sent,
        "received_bytes_by_node": carried.received,
        "sharing": run.parallel.sharing(run.workers_per_node),
        "delivery": delivered._asdict() if isinstance(delivered, delivery.Delivery) else {},
        "pauses": sum(event["event"] == "rank_paused" for event in events),
    }
    late = _lateness(run, steps, took_s, proof["audit"])
    evidence = RunEvidence(
        run, proof, events, links, took_s, run_dir, steps, carried, delivered, late
    )
    verdict = judge(RUN_CHECKS, evidence)
    found = summary.of(run_dir, events, verdict.reasons, proof | {"checks": verdict.checks})
    return found | graded(verdict.reasons, late) | {"dilation": run.emulation.dilation}


def graded(reasons: Sequence[str], late: Lateness | None) -> dict[str, Any]:
    """Grade of a run and the bound that it rests on, for summary.json."""
    grade = "invalid" if reasons else late.grade if late else "valid"
    return {
        "grade": grade,
        "late_at_most_s": late.at_most_s if late else None,
        "late_at_most_share": late.share if late else None,
    }


def _lateness(run: Run, steps: list[Row], took_s: float, audit: dict[str, Any]) -> Lateness | None:
    """Bound how late others made a run; None if computation is measured or nothing counts waits."""
    if run.emulation.is_measured:
        return None
    machines = getattr(run.network, "machines", None) or 1
    processors_s = (os.cpu_count() or 1) * machines * took_s
    others, stolen = audit["cpu_others_share"], audit["cpu_steal_share"] or 0.0
    known = others is not None and machines == 1
    had = Processors(others * processors_s if known else nan, stolen * processors_s)
    lag = run.parallel.lag
    fastest_s = 0.0
    if run.parallel.in_ring and not lag and run.nodes > 1:
        highest_mbit, burst_s = run.profile.extremes().highest_mbit, BURST_US / 1e6
        fastest_s = lateness.fastest_s(steps, highest_mbit, burst_s / run.emulation.dilation)
    return lateness.bound(steps, took_s, had, fastest_s)


def network_reasons(
    run: OnANetwork,
    proof: dict[str, Any],
    events: list[dict[str, Any]],
    rows: dict[str, list[Row]],
    took_s: float,
) -> list[str]:
    """Return reasons of NETWORK_CHECKS against a run of `took_s` emulated seconds; [] if proven."""
    return judge(NETWORK_CHECKS, NetworkEvidence(run, proof, events, rows, took_s)).reasons


def by_link(run_dir: Path) -> dict[str, list[Row]]:
    """Return the rows of links.csv by link, each in order of time."""
    links: dict[str, list[Row]] = defaultdict(list)
    for row in summary.rows(run_dir / "links.csv"):
        links[row["link"]].append(row)
    return links


def _delivered(
    run_dir: Path,
    run: Run,
    events: list[dict[str, Any]],
    links: dict[str, list[Row]],
    carried: byte_audit.Payload,
) -> delivery.Delivery:
    """Judge delivery of gradient exchanges; NotNeeded or CouldNotCheck if it cannot be judged."""
    if run.nodes < 2:
        raise NotNeeded("no traffic leaves the only node")
    if not run.parallel.in_ring:
        raise NotNeeded("only ring collectives of all workers fill every link at once")
    if not any(carried.sent.values()):
        raise NotNeeded("the workers sent nothing")
    profile = run.profile
    assert isinstance(run.network, Shaping)
    delayed, flows = run.network.needs_netem(profile), bool(profile.extremes().flows)
    table, dilation = run_dir / "collectives.csv", run.emulation.dilation
    return delivery.judged(table, events, links, dilation, bounded=(not delayed, not flows))


def _excess(evidence: RunEvidence) -> byte_audit.Excess:
    """Allowance for unaccounted bytes, by the number of collectives of each rank."""
    table, ranks = evidence.run_dir / "collectives.csv", evidence.run.workers
    with table.open() if table.exists() else nullcontext(()) as lines:
        collectives = max(0, sum(1 for _ in lines) - 1) // ranks
    saved = sum(event["event"] == "checkpoint" for event in evidence.events)
    evaluations = len(summary.rows(evidence.run_dir / "evaluations.csv"))
    return byte_audit.excess(collectives, ranks, saved + evaluations)


def _of_bytes(evidence: RunEvidence) -> list[str]:
    run, proof = evidence.run, evidence.proof
    passed, nodes = proof["passed_bytes"], run.nodes
    if nodes < 2:
        raise NotNeeded("no traffic leaves the only node")
    if silent := sorted(set(range(nodes)) - set(evidence.carried.sent)):
        raise CouldNotCheck(f"steps.csv has no row of a rank of node {silent[0]}")
    if uncounted := [n for n in range(nodes) if f"up{n}" not in passed]:
        raise CouldNotCheck(f"the bytes of up{uncounted[0]} were not counted")
    loss, more = run.profile.extremes().loss, _excess(evidence)
    sharing = run.parallel.sharing(run.workers_per_node)
    return byte_audit.reasons(evidence.carried, proof["flows"], passed, sharing, loss, more)


def _of_delivery(evidence: RunEvidence) -> list[str]:
    if isinstance(evidence.delivered, Exception):
        raise evidence.delivered
    return validity_checks.of_delivery(evidence.delivered._asdict())


def _of_processors(evidence: NetworkEvidence) -> list[str]:
    if isinstance(evidence, RunEvidence) and evidence.late:
        raise NotNeeded("the bound of the lateness has what others took")
    is_emulated, took_s = not evidence.run.emulation.is_measured, evidence.took_real_s
    return validity_checks.of_processors(evidence.proof["audit"], is_emulated, took_s)


def _of_pace(evidence: RunEvidence) -> list[str]:
    if evidence.run.emulation.is_measured:
        raise NotNeeded("computation is measured")
    if evidence.late:
        raise NotNeeded("the bound of the lateness has what computation missed")
    worst = max(event["overruns"] for event in evidence.ends)
    steps = max(event["steps"] for event in evidence.ends)
    if worst <= max(1, OVERRUN_STEPS * steps):
        return []
    return [
        f"{worst} of {steps} steps computed longer than their paced time; raise "
        "emulation.dilation or use fewer workers"
    ]


def _of_lateness(evidence: RunEvidence) -> list[str]:
    if evidence.run.emulation.is_measured:
        raise NotNeeded("computation is measured")
    if evidence.late is None:
        raise NotNeeded("waits of its threads were not counted; processors and pace are checked")
    reads_times = evidence.run.controller().reacts_to_network
    return validity_checks.of_lateness(evidence.late, reads_times)


def _of_outliers(evidence: RunEvidence) -> list[str]:
    parts = ("compress_s",) if evidence.late else ("compute_s", "compress_s")
    dilation = evidence.run.emulation.dilation
    return validity_checks.of_outliers(evidence.steps, dilation, parts)


def _of_ends(evidence: RunEvidence) -> Iterable[str]:
    ended = {event["rank"] for event in evidence.ends}
    if missing := sorted(set(range(evidence.run.workers)) - ended):
        raise CouldNotCheck(f"events.jsonl has no end of rank {missing[0]}")
    return ()


def _of_pauses(evidence: RunEvidence) -> list[str]:
    watched = {event["rank"] for event in evidence.events if "pid" in event}
    if missing := sorted(set(range(evidence.run.workers)) - watched):
        raise CouldNotCheck(f"the process of rank {missing[0]} is not known")
    return validity_checks.of_pauses(evidence.events, evidence.steps, evidence.late is not None)


def _probed(evidence: NetworkEvidence) -> list[str]:
    return [name for probe in evidence.proof["probe"] for name in validity_checks.names(probe)]


# Checks that only need records of the links; `harness.around` has no other records.
NETWORK_CHECKS: Sequence[Check[NetworkEvidence]] = (
    Check("rates before step 0", lambda e: validity_checks.of_probes(e.proof["probe"], e.links)),
    Check("round trips", lambda e: validity_checks.of_round_trips(e.proof["round_trips"])),
    Check("capacity of this machine", lambda e: validity_checks.of_ceiling(e.proof["ceiling"])),
    Check("processors", _of_processors),
    Check(
        "plan of the links",
        lambda e: validity_checks.of_plan(e.proof["audit"], e.events, e.run.network.update_s),
    ),
    Check("changes by others", lambda e: validity_checks.of_changes(e.events)),
    Check("watching", lambda e: validity_checks.of_watching(e.events, e.proof["audit"])),
    Check(
        "samples of links",
        lambda e: validity_checks.of_samples(
            e.links, _probed(e), e.took_real_s, e.run.network.sample_s, e.run.emulation.dilation
        ),
    ),
    Check(
        "competing flows", lambda e: validity_checks.of_flows(e.events, e.run.emulation.dilation)
    ),
    Check(
        "read-back", lambda e: [f"network changed: {problem}" for problem in e.proof["readback"]]
    ),
)
RUN_CHECKS: Sequence[Check[RunEvidence]] = (
    *NETWORK_CHECKS,
    Check("delivery", _of_delivery),
    Check("bytes", _of_bytes),
    Check("pauses", _of_pauses),
    Check("length of steps", _of_outliers),
    Check("pace", _of_pace),
    Check("lateness", _of_lateness),
    Check("weights", lambda e: summary.drift_reasons(e.ends)),
    Check("ends of ranks", _of_ends),
)
