"""Messages in virtual time end when SimGrid's flow model says: an implementation that is not ours.

Random stars and dumbbells, static rates and such that step, and what programs send over them.
Neither side has latencies, noise, bursts or wakings.
"""

import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from harness.virtual.costs import Costs
from harness.virtual.routes import VOID, DumbbellRoutes, Routes, StarRoutes
from harness.virtual.traffic import Flow, Traffic
from profiles.base import Extremes, Link, Way
from tests.virtual.threads import costs_of

SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's, which python3-simgrid is built for
SCRIPT = Path(__file__).with_name("referee.py")
WITHIN = 0.01  # of the time that a message takes: a law of the engine
LOOK_S = 0.1
MB = 1_000_000
SEEDS = range(6)


@dataclass(frozen=True)
class Apart:
    """Every direction has [time_s, rate_mbit] steps of its own; the last rate stays."""

    steps: dict[tuple[int, Way], list[tuple[float, float]]]

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return Link(next(mbit for at_s, mbit in reversed(self.steps[node, way]) if at_s <= time_s))

    def flows(self, time_s: float) -> int:
        return 0

    def extremes(self) -> Extremes:
        rates = [mbit for steps in self.steps.values() for _, mbit in steps]
        return Extremes(min(rates), max(rates))


class Message(NamedTuple):
    """It begins at `start_s`, or later, when all messages numbered in `after` are there."""

    start_s: float
    after: list[int]
    sender: int
    receiver: int
    nbytes: int


Program = Callable[[random.Random, int], list[Message]]


def ring(chance: random.Random, nodes: int) -> list[Message]:
    """An all-reduce: every rank hands on what it has just been sent, one message at a time."""
    size, messages = chance.randint(MB // 10, MB), list[Message]()
    for step in range(2 * (nodes - 1)):
        before = len(messages) - nodes
        for rank in range(nodes):
            after = [before + (rank - 1) % nodes, before + rank] if step else []
            messages.append(Message(0.0, after, rank, (rank + 1) % nodes, size))
    return messages


def all_to_all(chance: random.Random, nodes: int) -> list[Message]:
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    return [Message(0.0, [], *pair, chance.randint(1, MB)) for pair in pairs]


def incast(chance: random.Random, nodes: int) -> list[Message]:
    """All send to one, which some do later."""
    return [
        Message(chance.uniform(0, 2), [], rank, 0, chance.randint(1, 2 * MB))
        for rank in range(1, nodes)
    ]


def pipeline(chance: random.Random, nodes: int) -> list[Message]:
    """Microbatches go from stage to stage; each stage sends one after the other."""
    size, messages = chance.randint(MB // 10, MB), list[Message]()
    for batch in range(4):
        for stage in range(nodes - 1):
            number = len(messages)
            after = [number - 1] * (stage > 0) + [number - (nodes - 1)] * (batch > 0)
            messages.append(Message(0.0, after, stage, stage + 1, size))
    return messages


def pushes_and_pulls(chance: random.Random, nodes: int) -> list[Message]:
    """Every worker pushes to node 0 and pulls, again and again, each at its own time."""
    messages: list[Message] = []
    for worker in range(1, nodes):
        for turn in range(3):
            after = [len(messages) - 1] * (turn > 0)
            messages.append(Message(chance.uniform(0, 1), after, worker, 0, chance.randint(1, MB)))
            messages.append(Message(0.0, [len(messages) - 1], 0, worker, chance.randint(1, MB)))
    return messages


def anything(chance: random.Random, nodes: int) -> list[Message]:
    def one() -> Message:
        sender, receiver = chance.sample(range(nodes), 2)
        return Message(chance.uniform(0, 5), [], sender, receiver, chance.randint(1, 3 * MB))

    return [one() for _ in range(60)]


PROGRAMS = (ring, all_to_all, incast, pipeline, pushes_and_pulls, anything)


def apart(chance: random.Random, nodes: int, stepping: bool) -> Apart:
    times = [look * LOOK_S for look in sorted(chance.sample(range(1, 100), 6))] if stepping else []
    return Apart({
        (node, way): [(at_s, chance.uniform(2, 40)) for at_s in (0.0, *times)]
        for node in range(nodes) for way in ("up", "down")
    })  # fmt: skip


def network(chance: random.Random, kind: str, stepping: bool) -> Routes:
    nodes = chance.randint(3, 7)
    profile = apart(chance, nodes, stepping)
    if kind == "star":
        return StarRoutes(profile, nodes)
    return DumbbellRoutes(
        profile, nodes, chance.randint(1, nodes - 1), apart(chance, nodes, stepping)
    )


def ours(routes: Routes, messages: list[Message]) -> list[float]:
    traffic = Traffic(costs_of(None, routes.nodes, routes=routes, update_s=LOOK_S))
    flows: dict[int, Flow] = {}

    def due_s(number: int) -> float:
        """When a message begins, as far as is known."""
        before = [flows[each].end_s if each in flows else None for each in messages[number].after]
        known = [inf if end_s is None else end_s for end_s in before]
        return max(messages[number].start_s, *known, 0.0)

    waiting = set(range(len(messages)))
    while waiting or traffic.next_s() < inf:
        begins_s, number = min(((due_s(each), each) for each in waiting), default=(inf, -1))
        if begins_s <= traffic.next_s():
            flows[number] = traffic.begin(begins_s, *messages[number][2:])
            waiting.remove(number)
        else:
            traffic.advance(traffic.next_s())
    return [flows[number].end_s or 0.0 for number in range(len(messages))]


def theirs(routes: Routes, messages: list[Message]) -> list[float]:
    job = {"nodes": routes.nodes, "links": links(routes), "paths": paths(routes),
           "messages": messages}  # fmt: skip
    done = subprocess.run(
        [SYSTEM_PYTHON, str(SCRIPT)], input=json.dumps(job), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: list[float] = json.loads(done.stdout)
    return found


def links(routes: Routes) -> dict[str, list[tuple[float, float]]]:
    """Bytes/s of every direction, and from when on."""
    told = {f"trunk_{way}": (0, way) for way in ("up", "down")}
    found = {}
    for name in routes.names:
        trunk = isinstance(routes, DumbbellRoutes) and name in told
        profile = routes.profile if trunk or isinstance(routes, StarRoutes) else routes.access  # type: ignore[attr-defined]
        where = told[name] if trunk else (int(name.strip("updown")), name.strip("0123456789"))
        found[name] = [(at_s, mbit * 125_000) for at_s, mbit in profile.steps[where]]
    return found


def paths(routes: Routes) -> list[tuple[int, int, list[int]]]:
    pairs = [(a, b) for a in range(routes.nodes) for b in range(routes.nodes) if a != b]
    crossed = routes.paths(*(np.array(each) for each in zip(*pairs, strict=True)))
    return [(*pair, [int(each) for each in row if each != VOID])
            for pair, row in zip(pairs, crossed, strict=True)]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _simgrid() -> None:
    command = [SYSTEM_PYTHON, "-c", "import simgrid"]
    there = (
        Path(SYSTEM_PYTHON).exists() and not subprocess.run(command, capture_output=True).returncode
    )
    if not there and "CI" not in os.environ:
        pytest.skip("no SimGrid; `sh scripts/system-packages test` installs it")
    assert there, f"{SYSTEM_PYTHON} must have simgrid"


@pytest.mark.parametrize("stepping", [False, True], ids=["static", "stepping"])
@pytest.mark.parametrize("kind", ["star", "dumbbell"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_messages_end_when_the_referee_says(program: Program, kind: str, stepping: bool) -> None:
    for seed in SEEDS:
        chance = random.Random(f"{program.__name__} {kind} {stepping} {seed}")
        routes = network(chance, kind, stepping)
        messages = program(chance, routes.nodes)
        expected = theirs(routes, messages)
        assert ours(routes, messages) == pytest.approx(expected, rel=WITHIN), seed


@pytest.mark.parametrize("kind", ["star", "dumbbell"])
def test_a_ring_alone_takes_what_its_closed_form_says(kind: str) -> None:
    for seed in SEEDS:
        chance = random.Random(f"ring {kind} {seed}")
        routes = network(chance, kind, stepping=False)
        messages, nodes = ring(chance, routes.nodes), routes.nodes
        found = costs_of(None, nodes, routes=routes).all_reduce(
            0, messages[0].nbytes * nodes, nodes
        )
        assert found == pytest.approx(max(theirs(routes, messages)), rel=WITHIN), seed


@pytest.mark.parametrize("kind", ["star", "dumbbell"])
def test_an_all_to_all_of_equal_pieces_takes_what_its_closed_form_says(kind: str) -> None:
    for seed in SEEDS:
        chance = random.Random(f"equal {kind} {seed}")
        routes = network(chance, kind, stepping=False)
        messages = [each._replace(nbytes=MB) for each in all_to_all(chance, routes.nodes)]
        sizes = MB * (1 - np.eye(routes.nodes, dtype=int))
        last_s = max(theirs(routes, messages))
        for collective in (Costs.all_to_all, Costs.send):
            found = collective(costs_of(None, routes.nodes, routes=routes), 0.0, sizes)
            assert found == pytest.approx(last_s, rel=WITHIN), seed
