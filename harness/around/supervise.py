"""Process 1 of a foreign command's run: prove the network, run the command, and judge the run."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.around.event_files import EventFiles, take
from harness.around.nodes import Nodes, OutputLine
from harness.around.processes import NodeProcess, of_nodes
from harness.around.settings import FIRST_BYTE, Asked, asked
from harness.around.told import EARLY, LinkTraffic, ToldStep, ToldSteps, write
from harness.around.verdict import Evidence, Interfaces, summarize
from harness.clock import Clock
from harness.config.settings import Settings
from harness.emulation.network import Network
from harness.emulation.profile_player import Player
from harness.records.run_directory import Events
from harness.runner.first_process import (
    POLL_S,
    RunFailed,
    conclude,
    look_for_the_end,
    played,
    proof_after,
    prove,
    require_played,
)
from harness.runner.pauses import Pauses
from profiles import recordings

LOOK_S = 1.0  # between looks at the nodes' interfaces and processes
QUIET_S = 0.05  # without a byte on any link: what proved them has left


def supervise(run_dir: Path) -> None:
    """Run the command from network to verdict. `first_process.to_its_end` records any ending."""
    run = asked(Settings.read(run_dir))
    clock, events = Clock(run.emulation.dilation), Events(run_dir)
    with run.network.up(run.nodes, run.profile, clock.dilation) as network:
        told = {"seed": run.seed, "dilation": clock.dilation, "folder": str(Path.cwd())}
        told["recordings"] = recordings.notes(run.profile, run.network)
        proof = prove(network, run_dir, told)
        events.append("network_up", nodes=run.nodes)
        _wait_until_quiet(network)
        course = UnderWay(run, network, clock, events)
        nodes = Nodes(run_dir, run, network)
        with played(network, clock, run_dir, events) as player:
            course.follow(nodes, player)
            evidence = course.evidence(proof)
        proof |= proof_after(network, player, course.pauses)
        own = run.target.metric or ""
        write(run_dir, course.readings, course.steps, course.traffic, run.nodes, own)
        summary = summarize(run_dir, run, evidence)
    conclude(run_dir, summary)


def _wait_until_quiet(network: Network) -> None:
    last: dict[str, int] = {}
    while (now := network.bytes()) != last:
        last = now
        time.sleep(QUIET_S)


@dataclass
class UnderWay:
    """A run while its command runs: start of its clock, its output, and its traffic."""

    run: Asked
    network: Network
    clock: Clock
    events: Events
    traffic: LinkTraffic = field(init=False)
    interfaces: Interfaces = field(init=False)
    readings: ToldSteps = field(init=False)
    pauses: Pauses = field(init=False)
    processes: dict[int, NodeProcess] = field(default_factory=dict, init=False)
    ended_s: float | None = field(default=None, init=False)
    steps: list[ToldStep] = field(default_factory=list, init=False)
    unread: str = field(default="", init=False)  # why event files were not

    def __post_init__(self) -> None:
        self.traffic = LinkTraffic(self.network, self.clock)
        self.interfaces = Interfaces(self.network)
        self.readings = ToldSteps(self.run.command, self.run.workers_per_node)
        where = self.run.command.tensorboard
        self.event_files = None if where is None else EventFiles(Path(where))
        self._numbers: dict[int, int] = {}
        self.pauses = Pauses(self._numbers, self.clock.time_s)

    def follow(self, nodes: Nodes, player: Player) -> None:
        """Return when the command has succeeded on every node. Raise RunFailed if it fails."""
        began = looked = time.monotonic()
        failed_by: float | None = None
        while nodes.running:
            self._once(nodes, player)
            now = time.monotonic()
            if now - looked > LOOK_S:
                self.interfaces.look()
                self.processes |= {each.pid: each for each in of_nodes(self.network)}
                self._numbers.update({pid: pid for pid in self.processes})
                looked = now
            if not self.clock.running and now - began > self.run.timeouts.start_s:
                raise RunFailed(self._never_started())
            if nodes.failure() and failed_by is None:
                failed_by = now + self.run.timeouts.stop_s
            if failed_by is not None and now > failed_by:
                break
        for line in nodes.rest():
            self._take(line)
        if failure := nodes.failure():
            raise RunFailed(failure)
        self.ended_s = self.clock.time_s()
        self.interfaces.look()
        if self.ended_s is not None:
            self.traffic.look(self.ended_s)
            if self.event_files is not None:
                self._read(self.event_files, self.ended_s)
            self.steps = self.readings.finish(self.ended_s, self.clock.dilation)

    def evidence(self, proof: dict) -> Evidence:
        """Collect the evidence for a verdict. `proof` is the network's, of its start and end."""
        return Evidence(
            proof=proof,
            traffic=self.traffic,
            interfaces=self.interfaces,
            steps=self.steps,
            took_s=self.ended_s,
            uncounted=self.readings.uncounted,
            unread=self.unread,
            pauses=[(self.processes[each.rank], each) for each in self.pauses.end()],
        )

    def _once(self, nodes: Nodes, player: Player) -> None:
        for line in nodes.lines(POLL_S):
            self._take(line)
        look_for_the_end(0.0)
        nodes.reap()
        require_played(player)
        if self.clock.running:
            self.traffic.look_if_time()
            self.pauses.look()
        elif self.run.command.start == FIRST_BYTE:
            self._start_at_first_byte()

    def _take(self, line: OutputLine) -> None:
        """Count a line of node 0. A line of any node may start the clock."""
        start = self.run.command.start
        tells = line.node == 0 and self.event_files is None and self.readings.matches(line.text)
        if not self.clock.running:
            if start != FIRST_BYTE and re.search(start, line.text):
                self._start()
            elif start == FIRST_BYTE and tells:
                self._start_at_first_byte()  # it may have passed since the last look
        if not tells:
            return
        if self.clock.running:
            came_s = (line.came - self.clock.monotonic(0.0)) / self.clock.dilation
            came_s = max(0.0, came_s)  # the clock may have started at this line
            if self.readings.take(line.text, came_s):
                self.traffic.look(came_s)
        elif start == FIRST_BYTE:
            self.readings.leave_out(EARLY, line.text)

    def _start_at_first_byte(self) -> None:
        if any(self.traffic.passed().values()):
            self._start()

    def _read(self, files: EventFiles, ended_s: float) -> None:
        """Add the event files' steps to `readings`; if unreadable, store the reason in `unread`."""
        began_s = time.time() - time.monotonic() + self.clock.monotonic(0.0)  # since the epoch
        try:
            scalars = files.scalars()
        except ValueError as error:
            self.unread = str(error)
            return
        take(
            self.readings,
            scalars,
            lambda wall_s: min(ended_s, (wall_s - began_s) / self.clock.dilation),
        )

    def _start(self) -> None:
        self.clock.start()
        self.events.append("step_0", 0.0)
        self.traffic.look(0.0)

    def _never_started(self) -> str:
        sent = self.interfaces.sent_bytes
        told = "; ".join(
            f"node {node} sent " + ", ".join(f"{n} bytes by {name}" for name, n in seen.items())
            for node, seen in sent.items()
        )
        within = f"within timeouts.start_s = {self.run.timeouts.start_s:g} s"
        return f"start={self.run.command.start} did not come {within}: {told}"
