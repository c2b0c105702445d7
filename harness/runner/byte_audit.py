"""Audit of bytes: shapers' counters against bytes of collectives and competing flows.

No flow may bypass its shaper, and only the run's own flows may pass through one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from harness.config.backends import BETWEEN_CPUS
from harness.records.flows import Competing, competing_bytes

BYPASS_SHARE = 0.98  # of the bytes sent, at least, must pass the shaper
EXCESS_SHARE = 1.1  # of the bytes sent, at most: headers are 1.046, the rest is retransmissions
STAGES_EXCESS_SHARE = 1.25  # of what stages and servers send, in messages that are not counted
ACKNOWLEDGING_SHARE = 0.05  # of the bytes that go the other way
HOP_BYTES = 400  # headers of a segment, of its announcement, and of answers; 350 measured
STOP_BYTES = 64 << 10  # to agree on an evaluation or a checkpoint, and on its outcome
EXCESS_BYTES = 256 << 10  # to leave in order, and what agents say meanwhile


class Bounds(NamedTuple):
    """Least and most payload that a link must have carried."""

    least: float
    most: float


class Excess(NamedTuple):
    """Allowance for bytes that neither collectives nor competing flows explain."""

    share: float  # of that, itself included
    bytes: float


def excess(collectives: int, ranks: int, stops: int) -> Excess:
    """Return the bytes allowed beyond the payload, for a run with `collectives` per rank.

    `stops` is the number of evaluations and checkpoints. 0 collectives means unknown.
    """
    hops = 2 * (ranks - 1) * BETWEEN_CPUS.segments_per_rank * collectives
    share = EXCESS_SHARE if collectives else STAGES_EXCESS_SHARE
    return Excess(share, EXCESS_BYTES + STOP_BYTES * stops + HOP_BYTES * hops)


class Payload(NamedTuple):
    """Bytes that each node's workers sent and received, by node."""

    sent: dict[int, int]
    received: dict[int, int]
    in_ring: bool = True  # everything goes round all nodes; a pipeline sends to neighbours


def payload(
    steps: list[dict[str, str]],
    workers_per_node: int,
    ends: Iterable[dict[str, Any]] = (),
    in_ring: bool = True,
) -> Payload:
    """Return each node's payload, from rows of steps.csv and the ranks' ends for evaluations."""
    found = Payload(defaultdict(int), defaultdict(int))
    rows = [(row["rank"], row["sent_bytes"], row["received_bytes"]) for row in steps]
    rows += [(end["rank"], *end["aside_bytes"]) for end in ends if "aside_bytes" in end]
    for rank, sent, received in rows:
        node = int(rank) // workers_per_node
        found.sent[node] += int(sent)
        found.received[node] += int(received)
    return Payload(dict(found.sent), dict(found.received), in_ring)


def reasons(
    carried: Payload,
    flows: list[dict[str, Any]],
    passed: Mapping[str, int],
    sharing: int,
    loss: float,
    more: Excess,
) -> list[str]:
    """Return reasons against validity, from frame bytes `passed` through each link.

    `loss` is the profile's highest. Of the `sharing` workers of a node, ring collectives send to
    other nodes only what one of them sends.
    """
    if len(carried.sent) < 2:
        return []  # nothing leaves the node
    reasons = []
    slack = more.share / (1 - loss) ** 2  # lost packets are retransmitted, and may be lost again
    for link, bounds in _bounds(carried, flows, passed, sharing).items():
        seen = passed[link]
        if seen < 0:
            reasons.append(f"the bytes of {link} went back by {-seen}: its counter was replaced")
        if seen < BYPASS_SHARE * bounds.least:
            reasons.append(
                f"{bounds.least:.0f} bytes were to cross {link}, its counter saw {seen}, less than "
                f"{BYPASS_SHARE:g} x: there is a path around it"
            )
        if seen > slack * bounds.most + more.bytes:
            reasons.append(
                f"at most {bounds.most:.0f} bytes were to cross {link}, its counter saw {seen}, "
                f"more than {slack:.2f} x and {more.bytes:.0f}: other traffic shared it"
            )
    return reasons


def _bounds(
    carried: Payload, flows: list[dict[str, Any]], passed: Mapping[str, int], sharing: int
) -> dict[str, Bounds]:
    """Return bounds on the bytes of every link with a counter, by link."""
    cross = competing_bytes(flows)
    found = {}
    for node, sent in carried.sent.items():
        received = carried.received[node]
        found[f"up{node}"] = _with(cross, f"up{node}", sent / sharing, sent, received)
        found[f"down{node}"] = _with(cross, f"down{node}", received / sharing, received, sent)
    # in whichever order, at least one node sends across each way of the trunk all that it sends
    across = min(carried.sent.values()) / sharing if carried.in_ring else 0
    total = sum(carried.sent.values())
    for link in ("trunk_up", "trunk_down"):
        found[link] = _with(cross, link, across, total, total)
    return {link: bounds for link, bounds in found.items() if link in passed}


def _with(
    cross: Mapping[str, Competing], link: str, least: float, most: float, other_way: float
) -> Bounds:
    """Return bounds of collectives plus competing flows and acknowledgements of the other way."""
    back = link.replace("up", "down") if "up" in link else link.replace("down", "up")
    acknowledging = ACKNOWLEDGING_SHARE * (other_way + cross[back].sent)
    return Bounds(least + cross[link].delivered, most + cross[link].sent + acknowledging)
