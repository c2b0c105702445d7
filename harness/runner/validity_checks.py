"""Checks of a network's behaviour. Reasons state the observation, the limit, and a remedy.

`harness.runner.validity` lists them. Each raises CouldNotCheck or NotNeeded if it was not made.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from harness.emulation.pressure import SHORTEST_S
from harness.emulation.profile_player import STOOD_STILL_S
from harness.runner.checks import CouldNotCheck, NotNeeded
from harness.runner.lateness import MOST_BOUNDED_SHARE, MOST_VALID_SHARE, Lateness
from harness.runner.pauses import WAITED

LEAST_HEADROOM = 2.0  # unshaped capacity of the machine / need of the links
# Of the processors, whatever has them. With none idle, paced and replayed steps took from 0 to 24 %
# longer, the longer the more processes wanted one; so much is not to be told from the rest.
LEAST_IDLE_SHARE = 0.02
# What others take of the processors makes measured computation longer, mostly by as long as ranks
# wait for one. Beside waiting there are caches and memory. A process that streamed memory on the
# other of two processors for half of the time, 0.25 of both, made matrix products take 1.00 x and
# streaming 1.06 x their processor's time; one that did so always 1.04 x and 1.49 x.
MOST_OTHERS_SHARE, MOST_OTHERS_UNFELT_SHARE = 0.05, 0.25
MOST_WAITED_SHARE = 0.05  # of the time that ranks wanted a processor
OR_PACED = ", or use emulation.compute=paced or replay"  # where computation is ours
MOST_STEAL_SHARE = 0.02  # of them, taken by the machine that this one is a guest of
OUTLIER, OUTLIER_S = 10.0, 0.5  # x a rank's median step, and real seconds above it: it stood still
UNSETTLED_STEPS = 2  # of a run: caches fill
CARRIED_SHARE = 1.02  # carried bytes / bytes that the shaper's rates allow
OFF_PLAN_SHARE = 0.01  # of the samples of links
SKIPPED_SHARE = 0.01  # of the changes of the plan; one is always allowed
SAMPLED_SHARE = 0.5  # of the rows that links.csv should have for a link
# real: any run may be sampled so rarely, and a longer one at most so rarely beside its length
ALWAYS_SAMPLE_S, MOST_SAMPLE_SHARE = 0.25, 0.25
# Share of the plan while ranks communicate. A ring between CPUs delivers 0.91 to 0.97 of a static
# link with exchanges of a megabyte, and its slowest case seen on a quiet machine 0.84; a plan that
# the shapers cannot follow 0.46. A second has a hundredth of the exchanges, so less is asked of it.
LEAST_DELIVERED, LEAST_DELIVERED_WORST = 0.8, 0.5
# A link never carries more than its shaper lets through, except for a packet. Within a second,
# the time between a sample and its counters, some tens of milliseconds, adds to it.
MOST_DELIVERED, MOST_DELIVERED_WORST = 1.05, 1.2
MOST_SHORT, MOST_SHORT_WORST = 1.0, 1.6  # of the time that plan and latency allow short exchanges
MOST_TOLD = 4  # changes from outside; the events have all
FLOW_LATE_S = 2.0  # real, for iperf3 to start and its data to flow

Row = dict[str, str]


def of_probes(probes: Iterable[dict[str, Any]], rows: Mapping[str, list[Row]]) -> list[str]:
    """Return reasons for links off their rate or not probed, CouldNotCheck without probes."""
    probes = list(probes)
    if not probes:
        raise CouldNotCheck("no link was probed")
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
    """Return the links that a probe crossed: `up0`, or between machines `up0-down1`."""
    return re.findall(r"\w+", probe["link"])


def of_round_trips(trips: Iterable[dict[str, Any]]) -> list[str]:
    trips = list(trips)
    if not trips:
        raise NotNeeded("no path is delayed at step 0")
    return [
        f"round trip {trip['name']} {_took(trip['measured_ms'])} before step 0, "
        f"expected {trip['planned_ms']:g} ms; try again on an idle machine"
        for trip in trips
        if not trip["ok"]
    ]


def _took(measured_ms: float | None) -> str:
    return "had no answer" if measured_ms is None else f"took {measured_ms:.1f} ms"


def of_ceiling(ceiling: dict[str, Any]) -> list[str]:
    """Return reasons unless this machine carries LEAST_HEADROOM times what the links need.

    `ceiling` has real `needed_mbit` and `carried_mbit`. Raise NotNeeded if the second is None.
    """
    needed, carried = ceiling["needed_mbit"], ceiling["carried_mbit"]
    if carried is None:
        raise NotNeeded("there is one node, or the links are real ones")
    if carried >= LEAST_HEADROOM * needed:
        return []
    return [
        f"with open shapers this machine carries {carried:.0f} Mbit/s, less than "
        f"{LEAST_HEADROOM:g} x the {needed:.0f} its links may ask for; raise emulation.dilation"
    ]


def of_processors(audit: dict[str, Any], is_emulated: bool, took_s: float) -> list[str]:
    """Return reasons if processors, not the network, limited the run; [] if they did not.

    `audit` has the shares of processor time. `is_emulated` says that computation is paced or
    replayed, not measured. `took_s` is the run's real duration. If the share of steal time is
    unknown, raise NotNeeded for a short run, else CouldNotCheck.
    """
    steal_share = audit["cpu_steal_share"]
    if steal_share is None and took_s < SHORTEST_S:
        raise NotNeeded(f"a run of less than {SHORTEST_S:g} s; its pace and pauses are checked")
    if steal_share is None:
        raise CouldNotCheck("/proc/stat was read once only")
    reasons = _of_idle(audit) if is_emulated else _of_others(audit)
    if steal_share > MOST_STEAL_SHARE:
        reasons.append(
            f"the host of this virtual machine took {steal_share:.1%} of its processors, more than "
            f"{MOST_STEAL_SHARE:.0%}; use a quieter one"
        )
    return reasons


def of_lateness(late: Lateness, reads_times: bool) -> list[str]:
    """Return reasons if other programs delayed the run too much.

    `reads_times` says that the controller reads exchange times, so that delays change training.
    """
    most = MOST_VALID_SHARE if reads_times else MOST_BOUNDED_SHARE
    if late.share <= most:
        return []
    why = ", as its controller reads times" if reads_times else ""
    return [
        f"the run was late by at most {late.share:.0%} ({late.at_most_s:.2g} s), more than "
        f"{most:.0%}{why}: threads waited for a processor, or computation missed its pace; end "
        "other programs, raise emulation.dilation, or use fewer workers"
    ]


def _of_idle(audit: dict[str, Any]) -> list[str]:
    """Return reasons if emulated computation can have waited for a processor: too few were idle."""
    idle_share, others_share = audit["cpu_idle_share"], audit["cpu_others_share"]
    if idle_share is None or idle_share >= LEAST_IDLE_SHARE:
        return []
    return [
        f"the processors were idle for {idle_share:.1%} of the run, less than "
        f"{LEAST_IDLE_SHARE:.0%}, and other processes took {others_share:.1%}; end those, raise "
        "emulation.dilation, or use fewer workers"
    ]


def _of_others(audit: dict[str, Any]) -> list[str]:
    """Return reasons if ranks waited for other programs, or too many others ran."""
    others_share, waited_share = audit["cpu_others_share"], audit["cpu_waited_share"]
    if others_share is None or others_share <= MOST_OTHERS_SHARE:
        return []
    most, waiting = MOST_OTHERS_SHARE, ""
    if waited_share is not None and waited_share <= MOST_WAITED_SHARE:
        most = MOST_OTHERS_UNFELT_SHARE
    elif waited_share is not None:
        waiting = f", and ranks waited for one {waited_share:.1%} of the time that they wanted it"
    if others_share <= most:
        return []
    return [
        f"other processes took {others_share:.1%} of the processors, more than {most:.0%}, while "
        f"computation was measured{waiting}; end what else runs here{OR_PACED}"
    ]


def of_pauses(events: Iterable[dict], steps: Iterable[Row], is_bounded: bool) -> list[str]:
    """Name ranks that stood still, in which step, and why.

    With `is_bounded`, waits for a processor are left out: the bound of the lateness covers them.
    """
    ended: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for row in steps:
        ended[int(row["rank"])].append((float(row["time_s"]), int(row["step"])))
    return [
        f"rank {event['rank']} {event['cause']} for {event['length_s']:.1f} s, from "
        f"{event['time_s']:.2f} s on, in step {_step_at(ended[event['rank']], event['time_s'])}"
        for event in events
        if event["event"] == "rank_paused" and not (is_bounded and event["cause"] == WAITED)
    ][:MOST_TOLD]


def _step_at(ended: list[tuple[float, int]], time_s: float) -> str:
    return next((str(step) for at, step in ended if at >= time_s), "after the last")


def of_outliers(
    steps: Iterable[Row], dilation: float, parts: Sequence[str] = ("compute_s", "compress_s")
) -> list[str]:
    """Return reasons for steps in which one of `parts` took a rank far longer than usual.

    `steps` are rows of steps.csv. Raise CouldNotCheck without rows, and NotNeeded if all are of the
    first steps, which fill caches.
    """
    steps = list(steps)
    if not steps:
        raise CouldNotCheck("steps.csv has no row")
    if all(int(row["step"]) < UNSETTLED_STEPS for row in steps):
        raise NotNeeded(f"the first {UNSETTLED_STEPS} steps fill caches; pauses are checked")
    took: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for row in steps:
        for part in parts:
            took[part, int(row["rank"])].append((float(row[part]), int(row["step"])))
    reasons = []
    for (part, rank), each in took.items():
        usual_s = median(value for value, _ in each)
        most_s = max(OUTLIER * usual_s, usual_s + OUTLIER_S / dilation)
        reasons += [
            f"rank {rank} took {value:.2f} s to {part[:-2]} in step {step}, {usual_s:.3f} s in the "
            "median; what held it up?"
            for value, step in each[UNSETTLED_STEPS:]
            if value > most_s
        ]
    return reasons[:MOST_TOLD]


def of_plan(audit: dict[str, Any], events: Iterable[dict], update_s: float) -> list[str]:
    """Return reasons if links did not follow the plan: wrong rate, late change or skipped change.

    Raise CouldNotCheck if links were not sampled, or have no planned conditions in `events`.
    """
    reasons = []
    events = list(events)
    over, off_plan = audit["carried_over_allowed"], audit["off_plan_share"]
    if over is None or off_plan is None:
        raise CouldNotCheck("links were not sampled")
    if not any(event["event"] == "conditions" for event in events):
        raise CouldNotCheck("events.jsonl has no conditions of any link")
    if over > CARRIED_SHARE:
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


def of_changes(events: Iterable[dict]) -> list[str]:
    """Return changes that another process made to a link during the run, and when."""
    found = [event for event in events if event["event"] == "changed_outside"]
    reasons = [
        f"link {event['link']} was changed from outside at {event['time_s']:.2f} s: {event['what']}"
        for event in found[:MOST_TOLD]
    ]
    more = len(found) - MOST_TOLD
    return [*reasons, f"and {more} more changes from outside"] if more > 0 else reasons


def of_delivery(delivery: dict[str, Any]) -> list[str]:
    """Return reasons if links carried less than planned while ranks communicated."""
    reasons: list[str] = []
    took, worst = delivery["short_took"], delivery["short_took_worst"]
    for over, most, when in (
        (took, MOST_SHORT, ""),
        (worst, MOST_SHORT_WORST, f" in the second from {delivery['short_worst_s']} s on"),
    ):
        if over is not None and over > most and not reasons:
            reasons.append(
                f"{delivery['short_exchanges']} short exchanges took {over:.2f} x the time that "
                f"the plan and latency allow them{when}, more than {most:g} x; is a link slower "
                "than its plan, or the machine busy?"
            )
    share, worst = delivery["delivered"], delivery["delivered_worst"]
    if share is not None and share < LEAST_DELIVERED:
        reasons.append(
            f"while ranks communicated the links delivered {share:.2f} of their plan, less than "
            f"{LEAST_DELIVERED:g}; use slower changes of the profile or an idle machine"
        )
    elif worst is not None and worst < LEAST_DELIVERED_WORST:
        reasons.append(
            f"in the worst second of communication, from {delivery['worst_s']:.2f} s on, the links "
            f"delivered {worst:.2f} of their plan, less than {LEAST_DELIVERED_WORST:g}; "
            "did something hold up a rank or a link?"
        )
    share, worst = delivery["exceeded"], delivery["exceeded_worst"]
    for over, most, when in (
        (share, MOST_DELIVERED, ""),
        (worst, MOST_DELIVERED_WORST, " in a second"),
    ):
        if over is not None and over > most:
            reasons.append(
                f"link {delivery['exceeded_link']} carried {over:.2f} x what its plan has for the "
                f"time that ranks communicated{when}, more than {most:g} x; other traffic?"
            )
    return reasons


def of_watching(events: Iterable[dict], audit: dict[str, Any]) -> list[str]:
    """Return reasons for times without a watch; CouldNotCheck if ranks were never looked at."""
    reasons = [
        f"the player stood still for {event['length_s']:.1f} s until {event['time_s']:.2f} s: "
        "links were not watched meanwhile; was the supervisor stopped?"
        for event in events
        if event["event"] == "player_stood_still"
    ][:MOST_TOLD]
    if audit["unwatched_s"] is None:
        raise CouldNotCheck("no rank was looked at")
    if audit["unwatched_s"] > STOOD_STILL_S:
        reasons.append(
            f"ranks were not looked at for {audit['unwatched_s']:.1f} s, more than "
            f"{STOOD_STILL_S:g} s; was the supervisor stopped?"
        )
    return reasons


def of_samples(
    rows: Mapping[str, list[Row]],
    known: Iterable[str],
    took_s: float,
    sample_s: float,
    dilation: float,
) -> list[str]:
    """Return reasons for gaps in links.csv. `rows` has its rows by link.

    Reasons are `known` links without rows, too few rows, long gaps, and counters that fell.
    `took_s` and `sample_s` are real seconds. Raise CouldNotCheck if `sample_s` is too long.
    """
    if sample_s > (most_s := max(ALWAYS_SAMPLE_S, MOST_SAMPLE_SHARE * took_s)):
        raise CouldNotCheck(
            f"network.sample_s = {sample_s:g} s is more than {MOST_SAMPLE_SHARE:g} of the run's "
            f"{took_s:.1f} s; write network.sample_s={most_s:.2g} or less"
        )
    expected = took_s / sample_s
    reasons = [f"links.csv has no row of {name}" for name in sorted(set(known) - set(rows))]
    for name, samples in rows.items():
        if len(samples) < SAMPLED_SHARE * expected:
            reasons.append(
                f"link {name} was sampled {len(samples)} times, about {expected:.0f} expected; "
                "raise network.sample_s or use fewer nodes"
            )
        times_s = [dilation * float(row["time_s"]) for row in samples]
        holes = [(b - a, a) for a, b in zip(times_s, times_s[1:], strict=False)]
        hole_s, at_s = max(holes, default=(0.0, 0.0))
        if hole_s > sample_s + STOOD_STILL_S:
            reasons.append(
                f"link {name} was not sampled for {hole_s:.1f} s from {at_s / dilation:.2f} s on: "
                "the player stood still"
            )
        for counter in ("bytes", "drops"):
            values = [int(row[counter]) for row in samples]
            if any(now < before for before, now in zip(values, values[1:], strict=False)):
                reasons.append(f"the {counter} counter of {name} went back: it was replaced")
    return reasons


def of_flows(events: Iterable[dict], dilation: float) -> list[str]:
    """Return competing flows that started long after the plan wanted them."""
    late_s: dict[str, float] = defaultdict(float)
    for event in events:
        if event["event"] not in ("flow_started", "flow_never_came"):
            continue
        began, planned = event.get("time_s"), event.get("planned_s")
        if began is not None and planned is not None:
            late_s[event["flow"]] = dilation * (began - planned)
    late = {flow: value for flow, value in late_s.items() if value > FLOW_LATE_S}
    if not late:
        return []
    worst = max(late, key=lambda flow: late[flow])
    return [
        f"{len(late)} of {len(late_s)} competing flows began late, {worst} {late[worst]:.1f} s, "
        f"more than {FLOW_LATE_S:g} s; use fewer flows or raise emulation.dilation"
    ]
