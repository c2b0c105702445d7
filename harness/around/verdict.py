"""Verdict on a foreign command's traffic, and the summary of its run."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.around.processes import NodeProcess
from harness.around.settings import FIRST_BYTE, Asked
from harness.around.told import LOOK_S, LinkTraffic, ToldStep
from harness.emulation.network import Network
from harness.records import summary
from harness.records.run_directory import read_events
from harness.runner import delivery, validity
from harness.runner.byte_audit import BYPASS_SHARE
from harness.runner.delivery import Array
from harness.runner.pauses import Pause
from harness.runner.validity_checks import MOST_TOLD, OR_PACED

INTERFACES = Path("/proc/thread-self/net/dev")
LOOPBACK = "lo"
LATE_S = 0.1  # real, that a line may come late: a busy machine reads some tens of milliseconds late
TOLD_SHARE = 1.02  # of the time between two lines, and of the bytes that a link carries in it
PACKET_BYTES = 66  # the smallest of TCP: of nodes that train together each sends one in a step


class Interfaces:
    """Highest byte counts seen of every interface of every node, as one may vanish at the end."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.sent_bytes: dict[int, dict[str, int]] = defaultdict(dict)
        self._before: dict[int, dict[str, int]] = {}
        self.look()
        self._before, self.sent_bytes = dict(self.sent_bytes), defaultdict(dict)

    def look(self) -> None:
        """Update `sent_bytes` of all nodes of this machine from the kernel's interface counters."""
        for node in self._network.local:
            with self._network.entered(node):
                text = INTERFACES.read_text()
            for line in text.splitlines()[2:]:
                name, _, counts = line.partition(":")
                name, seen = name.strip(), self.sent_bytes[node]
                before = self._before.get(node, {}).get(name, 0)  # of the links' proof
                seen[name] = max(seen.get(name, 0), int(counts.split()[8]) - before)

    def beside(self, node: int) -> dict[str, int]:
        """Return bytes sent over unshaped interfaces of `node`, without the loopback."""
        usual = (LOOPBACK, self._network.interface)
        seen = self.sent_bytes[node].items()
        return {name: count for name, count in seen if count and name not in usual}


class Evidence(NamedTuple):
    """Evidence for the verdict on a run, beside its files."""

    proof: dict[str, Any]
    traffic: LinkTraffic
    interfaces: Interfaces
    steps: list[ToldStep]
    took_s: float | None  # emulated; None: the clock never started
    uncounted: dict[str, tuple[int, str]]  # matching lines: why, how many, the first of them
    unread: str  # why event files were not, or ""
    pauses: list[tuple[NodeProcess, Pause]]


def summarize(run_dir: Path, asked: Asked, found: Evidence) -> dict[str, Any]:
    """Return the content of summary.json: final numbers, reasons against validity, and proof."""
    events = read_events(run_dir)
    passed = found.traffic.passed()
    seen = {str(node): counts for node, counts in found.interfaces.sent_bytes.items()}
    proof = {**found.proof, "passed_bytes": passed, "interfaces_sent_bytes": seen}
    proof["pauses"] = len(found.pauses)
    reasons = _beside(asked, found.interfaces)
    if found.took_s is None:
        what = "no byte crossed a link" if asked.command.start == FIRST_BYTE else "no line matched"
        silent = _silent(asked, found.interfaces, dict.fromkeys(range(asked.nodes), 0), "in all")
        reasons += [f"{what}: start={asked.command.start} never came", *silent]
    else:
        rows = validity.by_link(run_dir)
        of_network = validity.network_reasons(asked, proof, events, rows, found.took_s)
        reasons += [reason.removesuffix(OR_PACED) for reason in of_network]
        told = [*_untold(asked, found), *_uncounted(found), *_own_time(asked, found, events)]
        reasons += [*_around(asked, found), *told, *_paused(found)]
    return summary.of(run_dir, events, reasons, proof)


def _beside(asked: Asked, interfaces: Interfaces) -> list[str]:
    return [
        f"node {node} sent {count} bytes by {name}, which no profile shapes: a path around its link"
        for node in range(asked.nodes)
        for name, count in interfaces.beside(node).items()
    ]


def _around(asked: Asked, found: Evidence) -> list[str]:
    """Return a reason for each node that sent less over its link than it must have."""
    if asked.nodes < 2:
        return []
    passed, sent = found.traffic.passed(), dict[int, int]()
    if not found.steps:  # what passed is known without
        sent = {node: passed[f"up{node}"] for node in range(asked.nodes)}
        return _silent(asked, found.interfaces, sent, "in all")
    first, last = found.steps[0], found.steps[-1]
    steps, took_s = last.step - first.step, last.came_s - first.came_s
    when = f"in {steps} steps" if steps else "in all"
    for node in range(asked.nodes):
        upto, since = (found.traffic.at(told.came_s, f"up{node}") for told in (last, first))
        is_short = took_s * asked.emulation.dilation < 2 * LOOK_S  # to tell what was sent in it
        sent[node] = round(upto if is_short else upto - since)
    reasons = _silent(asked, found.interfaces, sent, when, max(1, steps))
    least = (asked.command.sends_bytes or 0) * sum(told.steps for told in found.steps)
    for node in range(asked.nodes):
        if passed[f"up{node}"] < BYPASS_SHARE * least:
            reasons.append(
                f"{least} bytes were to cross up{node} (sends_bytes), its counter saw "
                f"{passed[f'up{node}']}, less than {BYPASS_SHARE:g} x: there is a path around it"
            )
    return reasons


def _silent(
    asked: Asked, interfaces: Interfaces, sent: Mapping[int, int], when: str, packets: int = 1
) -> list[str]:
    """Name nodes that do not train with the others, or not over their links."""
    if asked.nodes < 2:
        return []
    return [
        f"node {node} sent {count} bytes over its link {when}, and "
        f"{interfaces.sent_bytes[node].get(LOOPBACK, 0)} by {LOOPBACK}, which no profile shapes: "
        "it does not train with the others over the links"
        for node, count in sent.items()
        if count < PACKET_BYTES * packets
    ][:MOST_TOLD]


def _untold(asked: Asked, found: Evidence) -> list[str]:
    if found.steps:
        return []
    where, pattern = asked.command.tensorboard, asked.command.metrics
    if found.unread:
        return [f"{found.unread}: not read"]
    if where is not None:
        return [f"no scalar in new event files of node 0 in {where} was of metrics={pattern}"]
    return [f"no line of node 0 told of a step by metrics={pattern}"]


def _uncounted(found: Evidence) -> list[str]:
    return [
        f"{lines} line(s) of node 0 match metrics and do not count, the first {line!r}: {why}"
        for why, (lines, line) in found.uncounted.items()
    ][:MOST_TOLD]


def _own_time(asked: Asked, found: Evidence, events: list[dict]) -> list[str]:
    """Return the first reason not to believe the times that the command stated, or ""."""
    if "time" not in re.compile(asked.command.metrics or "").groupindex:
        return []
    reason = next(_of_own_time(found, events, LATE_S / asked.emulation.dilation), None)
    return [f"{reason}; leave the group time out of metrics"] if reason else []


def _of_own_time(found: Evidence, events: list[dict], slack_s: float) -> Iterator[str]:
    """Compare times between steps with when their lines came, and with the plan of the links.

    Of lines read at once, only the last came when it was written. A line may come `slack_s` late.
    """
    following = [*found.steps[1:], None]
    steps = [a for a, b in zip(found.steps, following, strict=True) if not b or b.came_s > a.came_s]
    told_s = np.array([step.time_s for step in steps])
    came_s = np.array([step.came_s for step in steps])
    over_s, low, high = _highest_rise(-np.array([step.time_s for step in found.steps]))
    if over_s > 0:
        between = f"from step {found.steps[low].step} to {found.steps[high].step}"
        yield f"the command's own time goes back by {over_s:.3g} s {between}"
    over_s, low, high = _highest_rise(told_s - TOLD_SHARE * came_s)
    if over_s > slack_s:
        yield (
            f"{told_s[high] - told_s[low]:.3g} s passed by the command's own time from step "
            f"{steps[low].step} to {steps[high].step}, whose lines came "
            f"{came_s[high] - came_s[low]:.3g} s apart"
        )
    for link, rate in delivery.plan(events).items():
        passed = np.array([found.traffic.at(at_s, link) for at_s in came_s])
        planned = rate.until(np.maximum(told_s, 0.0))
        most_rate = rate.values(np.maximum(told_s, 0.0)).max(initial=0.0)
        over, low, high = _highest_rise(passed - TOLD_SHARE * planned)
        if over > delivery.LARGEST_PACKET_BYTES + slack_s * most_rate:
            yield (
                f"{passed[high] - passed[low]:.0f} bytes crossed {link} from step "
                f"{steps[low].step} to {steps[high].step}, which took "
                f"{told_s[high] - told_s[low]:.3g} s by the command's own time: the plan has "
                f"{planned[high] - planned[low]:.0f} bytes for that"
            )


def _highest_rise(values: Array) -> tuple[float, int, int]:
    """Return the largest rise of `values`, and its begin and end. 0.0 if there is none."""
    if not len(values):
        return 0.0, 0, 0
    high = int(np.argmax(values - np.minimum.accumulate(values)))
    low = int(np.argmin(values[: high + 1]))
    return float(values[high] - values[low]), low, high


def _paused(found: Evidence) -> Iterable[str]:
    """Name processes that stood still after the first step began."""
    begins_s = found.steps[0].came_s if len(found.steps) > 1 else 0.0
    late = [(process, pause) for process, pause in found.pauses if pause.time_s >= begins_s]
    return [
        f"process {process.pid} ({process.name}) of node {process.node} {pause.cause} for "
        f"{pause.length_s:.1f} s, from {pause.time_s:.2f} s on"
        for process, pause in late[:MOST_TOLD]
    ]
