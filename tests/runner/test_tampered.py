"""Links that are tampered with, drawn anew for every commit, are named among runs that are valid.

`-s` prints each run with what was said of it.
"""

import random
import subprocess
from typing import NamedTuple

import pytest

from tests.aftermath import SETTLED, Scene, status
from tests.emulation.test_outside import KINDS
from tests.launching import ROOT, own_reasons, until
from tests.runner.test_fooled import RANK, SUPERVISOR, inside

pytestmark = [pytest.mark.launch, pytest.mark.timeout(900)]

RUNS, SAMPLE = 40, 2  # half of them are clean; so many of them without `-m faults`
PLACES = (  # an interface, whose process is in its namespace, and whether its root is free
    ("eth0", 0, True), ("eth0", 1, True), ("lo", 0, True), ("lo", 1, True),
    ("lo", None, True), ("u0", None, False), ("u1", None, False),
)  # fmt: skip
RUN = ("profile=static", "profile.rate_mbit=200", "steps=4")


class Tampering(NamedTuple):
    """A qdisc that is added to an interface during a run, and stays or is removed at once."""

    interface: str
    node: int | None  # None: in the switch
    kind: str
    stays: bool

    @property
    def place(self) -> str:
        return "the switch" if self.node is None else f"node {self.node}"


def drawn(number: int) -> Tampering | None:
    """The tampering of run `number`; None for every other run, which is clean."""
    if number % 2:
        return None
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).stdout
    draw = random.Random(f"{commit.decode()} {number}")
    interface, node, is_free = draw.choice(PLACES)
    kinds = [kind for kind, words in KINDS.items() if is_free or not words.startswith("root")]
    return Tampering(
        interface, node, draw.choice([k for k in kinds if has(k)]), draw.random() < 0.5
    )


def has(kind: str) -> bool:
    """True if this kernel has qdiscs of this kind."""
    tried = ["unshare", "--user", "--map-root-user", "--net", "tc", "qdisc", "add", "dev", "lo"]
    return subprocess.run([*tried, *KINDS[kind].split()], capture_output=True).returncode == 0


def tamper(run, tampering: Tampering) -> None:
    title = SUPERVISOR if tampering.node is None else f"{RANK} {tampering.node}"
    words = KINDS[tampering.kind]
    at = f"dev {tampering.interface}"
    commands = [f"tc qdisc add {at} {words}"]
    if not tampering.stays:
        commands.append(f"tc qdisc del {at} {words.split()[0]}")
    assert inside(run, title, "sh", "-ec", "; ".join(commands)).wait() == 0


@pytest.mark.parametrize(
    "number",
    [
        number if number < SAMPLE else pytest.param(number, marks=pytest.mark.faults)
        for number in range(RUNS)
    ],
)
def test_a_tampered_link_is_named_and_a_clean_run_is_valid(tmp_path, number: int) -> None:
    tampering = drawn(number)
    with Scene(tmp_path, None) as scene:
        running = scene.start(*RUN, f"seed={number}")
        run = scene.under_way()
        if tampering:
            tamper(run, tampering)
        scene.open()
        output, _ = running.communicate(timeout=120)
    until(lambda: status(run).get("state") in SETTLED, output)
    reasons = own_reasons(run)
    print(tampering or "clean", *reasons or ["valid"], sep="\n  ")
    if tampering is None:
        assert reasons == [], output
        return
    name = {"u0": "up0", "u1": "up1"}.get(
        tampering.interface, f"{tampering.interface} of {tampering.place}"
    )
    told = f"link {name} was changed from outside at "
    assert any(told in each and f"({tampering.kind})" in each for each in reasons), reasons
    read_back = f"interface {tampering.interface} of {tampering.place} has qdisc {tampering.kind} "
    assert tampering.stays == any(read_back in reason for reason in reasons), reasons
