"""Reasons not to believe what a network did: what was found, what is allowed, what to do."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

LEAST_HEADROOM = 2.0  # what the machine carries unshaped, over what the links may ask for
LEAST_IDLE_SHARE = 0.02  # of the processors, when computation is paced
CARRIED_SHARE = 1.02  # of what a shaper's rates add up to
OFF_PLAN_SHARE = 0.01  # of the samples of links
SKIPPED_SHARE = 0.01  # of the changes of the plan; one is always allowed
SAMPLED_SHARE = 0.5  # of the rows that links.csv should have for a link
FLOW_LATE_S = 2.0  # real, for iperf3 to start and its data to flow

Row = dict[str, str]


def of_probes(probes: Iterable[dict[str, Any]], rows: Mapping[str, list[Row]]) -> list[str]:
    """`rows` of links.csv, by link."""
    reasons = [
        f"link {probe['link']} carried {probe['measured_mbit']:.1f} Mbit/s of payload before "
        f"step 0, expected {probe['expected_mbit']:.1f}; try again on an idle machine, or raise "
        "network.probe_s or emulation.dilation"
        for probe in probes
        if not probe["ok"]
    ]
    proven = {name for probe in probes for name in names(probe)}
    missing = sorted(set(rows) - proven)
    return reasons + [f"link {name} was not probed before step 0" for name in missing]


def names(probe: dict[str, Any]) -> list[str]:
    """Links that a probe crossed: `up0`, or of machines `up0-down1`."""
    return re.findall(r"\w+", probe["link"])


def of_round_trips(trips: Iterable[dict[str, Any]]) -> list[str]:
    return [
        f"round trip {trip['name']} {_took(trip['measured_ms'])} before step 0, "
        f"expected {trip['planned_ms']:g} ms; try again on an idle machine"
        for trip in trips
        if not trip["ok"]
    ]


def _took(measured_ms: float | None) -> str:
    return "had no answer" if measured_ms is None else f"took {measured_ms:.1f} ms"


def of_host(ceiling: dict[str, Any], idle_share: float | None, paced: bool) -> list[str]:
    """What shows that this machine was the bottleneck, not the network."""
    reasons = []
    needed, carried = ceiling["needed_mbit"], ceiling["carried_mbit"]
    if carried is not None and carried < LEAST_HEADROOM * needed:
        reasons.append(
            f"with open shapers this machine carries {carried:.0f} Mbit/s, less than "
            f"{LEAST_HEADROOM:g} x the {needed:.0f} its links may ask for; raise emulation.dilation"
        )
    if paced and idle_share is not None and idle_share < LEAST_IDLE_SHARE:
        reasons.append(
            f"the processors were idle for {idle_share:.1%} of the run, less than "
            f"{LEAST_IDLE_SHARE:.0%}; raise emulation.dilation or use fewer workers"
        )
    return reasons


def of_plan(audit: dict[str, Any], events: Iterable[dict], update_s: float) -> list[str]:
    """What shows that the links did not follow the plan."""
    reasons = []
    over, off_plan = audit["carried_over_allowed"], audit["off_plan_share"] or 0.0
    if over is not None and over > CARRIED_SHARE:
        reasons.append(
            f"a link carried {over:.3f} x what its shaper should have let through, more than "
            f"{CARRIED_SHARE:g} x; is something else changing qdiscs?"
        )
    if off_plan > OFF_PLAN_SHARE:
        reasons.append(
            f"{off_plan:.1%} of the link samples were not at their planned rate, more than "
            f"{OFF_PLAN_SHARE:.0%}; is something else changing qdiscs?"
        )
    late_ms = audit["late_ms_p99"] or 0.0
    if late_ms > update_s * 1000:
        reasons.append(
            f"conditions came {late_ms:.0f} ms late (99 %), more than network.update_s = "
            f"{update_s * 1000:.0f} ms; raise it or use fewer nodes"
        )
    applied = [event.get("applied", True) for event in events if event["event"] == "conditions"]
    skipped = applied.count(False)
    if skipped > max(1, SKIPPED_SHARE * len(applied)):
        reasons.append(
            f"{skipped} of {len(applied)} changes of the plan came and went unapplied, more than "
            f"{SKIPPED_SHARE:.0%}; raise network.update_s or use fewer nodes"
        )
    return reasons


def of_samples(rows: Mapping[str, list[Row]], known: Iterable[str], expected: float) -> list[str]:
    """Holes in links.csv: `known` links without rows, far fewer than `expected`, or going back."""
    reasons = [f"links.csv has no row of {name}" for name in sorted(set(known) - set(rows))]
    for name, samples in rows.items():
        if len(samples) < SAMPLED_SHARE * expected:
            reasons.append(
                f"link {name} was sampled {len(samples)} times, about {expected:.0f} expected; "
                "raise network.sample_s or use fewer nodes"
            )
        for counter in ("bytes", "drops"):
            values = [int(row[counter]) for row in samples]
            if any(now < before for before, now in zip(values, values[1:], strict=False)):
                reasons.append(f"the {counter} counter of {name} went back: it was replaced")
    return reasons


def of_flows(events: Iterable[dict], dilation: float) -> list[str]:
    """Competing flows that came long after the plan wanted them."""
    late_s: dict[str, float] = defaultdict(float)
    for event in events:
        began, planned = event.get("time_s"), event.get("planned_s")
        if event["event"] == "flow_started" and began is not None and planned is not None:
            late_s[event["flow"]] = dilation * (began - planned)
    late = {flow: value for flow, value in late_s.items() if value > FLOW_LATE_S}
    if not late:
        return []
    worst = max(late, key=lambda flow: late[flow])
    return [
        f"{len(late)} of {len(late_s)} competing flows began late, {worst} {late[worst]:.1f} s, "
        f"more than {FLOW_LATE_S:g} s; use fewer flows or raise emulation.dilation"
    ]
