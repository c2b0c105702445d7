"""Process 1 of a run: bring its network up, start and watch the agents, prove, tear down."""

import time
from pathlib import Path
from typing import Any

from harness.clock import Clock
from harness.config.run import Run
from harness.config.settings import Settings
from harness.config.typed import leaves
from harness.emulation.choices import Packets
from harness.emulation.network import Network
from harness.emulation.profile_player import Player
from harness.engine.training import forms
from harness.engine.training.resume import resumed
from harness.records import environment
from harness.records.run_directory import Events, Table, read_events
from harness.runner import launch, server, tries, validity
from harness.runner.agents import Agents, cause, is_ours
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
from harness.runner.pauses import Pauses, processes
from harness.runner.priority import Priority
from profiles import recordings


def supervise(run_dir: Path) -> None:
    """Run from network to verdict. `first_process.to_its_end` records any ending."""
    settings = Settings.read(run_dir)
    run = settings.run(tries.dilation_of_try(run_dir))
    assert isinstance(run.network, Packets)
    begin, events = resumed(run.resume_from), Events(run_dir)
    clock = Clock(run.emulation.dilation, begin.manifest.time_s if begin else 0.0)
    with run.network.up(run.nodes, run.profile, clock.dilation) as network:
        _require_same(settings, run, network)
        told = {"seed": run.seed, "dilation": clock.dilation, "forms": forms.told(run)}
        told["recordings"] = recordings.notes(run.profile, run.network)
        proof = prove(network, run_dir, told)
        Table(run_dir, "collectives.csv").header()
        events.append("network_up", nodes=run.nodes)
        start = server.start if run.parallel.servers else launch.start
        agents = start(run_dir, run, network, clock)
        with played(network, clock, run_dir, events) as player:
            _reach_step_0(agents, clock, player, run.timeouts.start_s)
            ranks = processes(read_events(run_dir))
            priority = Priority(ranks.values()) if run.emulation.prefers_ranks else None
            environment.add(run_dir, priority=priority.obtained if priority else [])
            network.gather("step 0", None)
            before = network.bytes()
            clock.start()
            if begin:
                events.append("resumed", clock.begins_s, **begin.told())
            events.append("step_0", clock.begins_s)
            pauses = Pauses(ranks, clock.time_s)
            _follow(agents, player, pauses, priority, run.timeouts.stop_s)
            for pause in pauses.end():
                events.append("rank_paused", **pause._asdict())
        passed = {link: count - before[link] for link, count in network.bytes().items()}
        proof |= proof_after(network, player, pauses)
        summary = _judge(run_dir, run, network, agents, (proof, passed))
    conclude(run_dir, summary)
    if priority:
        priority.close()


def _require_same(settings: Settings, run: Run, network: Network) -> None:
    """Raise RunFailed, naming the key, if settings or device differ between machines of the run."""
    device = run.device_type(len(network.local) * run.workers_per_node)
    identities = network.gather("settings", settings.identity() | {"device": device})
    flat = [{".".join(keys): value for keys, value in leaves(each)} for each in identities]
    for machine, other in enumerate(flat):
        for key in sorted({*flat[0], *other}):
            here, there = flat[0].get(key), other.get(key)
            if here != there:
                raise RunFailed(f"{key} is {here!r} on machine 0 and {there!r} on {machine}")


def _reach_step_0(agents: Agents, clock: Clock, player: Player, start_s: float) -> None:
    deadline = time.monotonic() + start_s
    while not clock.ready:
        _watch(agents, player)
        if agents.endings:
            _fail(agents, wait_s=1.0)
        if time.monotonic() > deadline:
            raise RunFailed(f"not every rank was ready within timeouts.start_s = {start_s} s")


def _follow(
    agents: Agents, player: Player, pauses: Pauses, priority: Priority | None, stop_s: float
) -> None:
    """Return when every agent has ended, or is not needed, since all results are written.

    An agent waits for its peers at the end. One that died after its results must not block them.
    """
    deadline = None
    while agents.running and (deadline is None or time.monotonic() < deadline):
        _watch(agents, player)
        pauses.look()
        if priority:
            priority.look()
        if agents.endings and deadline is None:
            if not agents.all_ranks_finished():
                _fail(agents, wait_s=stop_s)
            deadline = time.monotonic() + stop_s


def _watch(agents: Agents, player: Player) -> None:
    look_for_the_end()
    agents.look_elsewhere()
    agents.reap()
    require_played(player)


def _fail(agents: Agents, wait_s: float) -> None:
    """Give the other ranks and machines `wait_s` to report, then raise the cause."""
    deadline = time.monotonic() + wait_s
    while agents.running and time.monotonic() < deadline:
        time.sleep(POLL_S)
        agents.reap()
    while not is_ours(agents) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        agents.look_elsewhere()
    raise RunFailed(cause(agents))


def _judge(
    run_dir: Path, run: Run, network: Network, agents: Agents, evidence: tuple[dict, dict]
) -> dict[str, Any]:
    """Write the summary on the machine of node 0 from all records. It is equal on all."""
    proof, passed = evidence
    network.collect(run_dir)
    passed = {k: v for each in network.gather("passed", passed) for k, v in each.items()}
    # The results are whole; leaving was not.
    codes = [[node, agents.endings.get(node, "did not end")] for node in network.local]
    exits = network.gather("exits", [[node, code] for node, code in codes if code != 0])
    summary = None
    if 0 in network.local:
        summary = validity.summarize(run_dir, run, proof, passed)
        summary["bad_exits_after_results"] = dict(sum(exits, []))
    return network.gather("summary", summary)[0]
