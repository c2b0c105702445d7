"""Settings that do not go together with a parameter server: one table, with a reason for each."""

from collections.abc import Callable
from dataclasses import is_dataclass
from operator import attrgetter
from typing import NamedTuple

from compressors.activations.dense import Dense
from compressors.base import Compressor
from harness.config.run import Run
from harness.config.server import Server
from harness.config.typed import require


class ServerRun(NamedTuple):
    """A run, and what is looked at of it."""

    run: Run
    layout: Server
    compressor: Compressor

    @property
    def is_virtual(self) -> bool:
        return self.run.network.in_process


class Constraint(NamedTuple):
    """`key` must be `must`, because of `reason`, where it `breaks`."""

    key: str
    must: str
    reason: str
    breaks: Callable[[ServerRun], bool]


def _is_not(key: str, value: object) -> Callable[[ServerRun], bool]:
    return lambda server_run: attrgetter(key)(server_run.run) != value


def _keeps(compressor: Compressor) -> bool:
    """True if threads of a trainer would write over each other's state."""
    held = vars(compressor).values()
    return not compressor.shares_state and any(isinstance(one, dict | list) for one in held)


CONSTRAINTS = (
    Constraint("network", "on one machine", "whose server is started with its workers",
               lambda a: a.run.network.machines_of_run() > 1),
    Constraint("network.alike", "false", "whose workers are served one after the other",
               lambda a: getattr(a.run.network, "alike", False)),
    Constraint("emulation.compute", "measured or paced", "over packets, where there is a model",
               lambda a: a.run.emulation.is_replay and not a.is_virtual),
    Constraint("workers_per_node", "1", "whose workers have a node each",
               _is_not("workers_per_node", 1)),
    Constraint("device", "cpu or auto", "whose processes know no GPU",
               lambda a: a.run.device == "cuda"),
    Constraint("activations", "dense",
               "whose trainers have the whole model: the server's weights have one version, and "
               "stages would each push a part of another",
               lambda a: not isinstance(a.run.activations(), Dense)),
    Constraint("compressor", "one that sends each worker's gradient by itself",
               "which has no all-to-all, and no second message after the mean of the first",
               lambda a: not a.compressor.pushes),
    Constraint("overlap", "per_bucket, its default,", "whose pushes follow backward in any case",
               _is_not("overlap", "per_bucket")),
    Constraint("emulation.compression", "null", "where nothing is compressed during backward",
               _is_not("emulation.compression", None)),
    Constraint("emulation.hooks", "null", "where nothing is sent during backward",
               _is_not("emulation.hooks", None)),
    Constraint("emulation.interference", "1", "where nothing is compressed during backward",
               _is_not("emulation.interference", 1)),
    Constraint("controller.agree", "local", "whose workers do not wait for each other (mode=async)",
               lambda a: a.layout.mode == "async" and a.run.agree != "local"),
    Constraint("parallel.threads", "1", "whose threads would share what a compressor keeps",
               lambda a: a.layout.threads > 1 and _keeps(a.compressor)),
    Constraint("parallel.threads", "1", "whose threads share a stream of text",
               lambda a: a.layout.threads > 1 and a.run.dataset.metric == "perplexity"),
    Constraint("watch", "null", "whose threads each see some of the steps",
               lambda a: a.layout.threads > 1 and a.run.watch is not None),
    Constraint("parallel.drain_period", "null", "which keeps nothing without error_feedback",
               lambda a: a.layout.drain_period is not None and not a.run.error_feedback),
    Constraint("parallel.drain", "zero", "which drains nothing while drain_period is null",
               lambda a: a.layout.drain != "zero" and a.layout.drain_period is None),
    Constraint("parallel.drain", "zero", "where a compressor that sends no positions cannot flush",
               lambda a: a.layout.drain != "zero" and not a.compressor.sends_positions),
    Constraint("parallel.restarts", "0", "of which nobody dies in virtual time",
               lambda a: a.is_virtual and a.layout.restarts > 0),
    Constraint("parallel.session_timeout_s", "null", "of which nobody is silent in virtual time",
               lambda a: a.is_virtual and a.layout.session_timeout_s is not None),
    Constraint("parallel.consistent_pull", "false", "which copies at once in virtual time",
               lambda a: a.is_virtual and a.layout.consistent_pull),
)  # fmt: skip


def check_server(run: Run, compressor: Compressor) -> None:
    """BadSetting, naming what to change, unless all goes with `parallel=server`, if it is that."""
    if not isinstance(run.parallel, Server):
        return
    server_run = ServerRun(run, run.parallel, compressor)
    made: dict[str, object] = {"controller.agree": run.agree, "compressor": compressor}
    made["activations"] = run.activations()
    for key, must, reason, breaks in CONSTRAINTS:
        if breaks(server_run):
            value = made[key] if key in made else attrgetter(key)(run)
            told = type(value) if is_dataclass(value) else value
            require(False, key, told, f"{must} with parallel=server, {reason}")
