"""Table of the settings that exclude each other, with a reason for each.

`python -m harness --help constraints` prints it. Every row is checked before anything starts. The
rows relate keys of a run to each other, to the data and to this machine. The range of a single
value is declared beside its field. Exclusions within one compressor, controller, profile or network
are in its class.
"""

import json
import os
from collections.abc import Callable, Iterator
from operator import attrgetter
from re import sub
from typing import Any, NamedTuple

import torch
from torch import Size

from compressors.activations.base import Activations
from compressors.activations.dense import Dense
from compressors.base import Compressor
from compressors.dense import Dense as DenseGradient
from controllers.base import Controller
from controllers.fixed import Fixed
from harness.config.backends import BETWEEN_CPUS
from harness.config.keys import BETA_2
from harness.config.parallel import Parallel
from harness.config.run import Run
from harness.config.server import MODES
from harness.config.typed import of_part, require
from harness.emulation.errors import NetworkError
from harness.emulation.shaping import Shaping
from harness.engine.local_steps.fragments import fragments_of
from harness.engine.pipeline.operators import before_cuts
from harness.engine.pipeline.stages import cuts_of
from harness.engine.training import resume
from harness.records.metrics import beyond
from harness.workloads.data.own import OwnData
from harness.workloads.models.tried import misfit
from profiles.base import WAYS

FEW_SAMPLES = 1000  # all our data sets have more
DAY_S = 86_400
MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_counted: dict[str, int] = {}  # number of samples by data set, cached for sweeps
_tried: dict[str, str] = {}  # misfit by model and data set, cached for sweeps


class Combination(NamedTuple):
    """A run, with the objects and machine facts that constraints test."""

    run: Run
    compressor: Compressor
    controller: Controller
    activations: Activations
    workers_here: int
    gpus_needed: int
    gpus_here: int

    @classmethod
    def of(cls, run: Run) -> "Combination":
        workers = run.workers // run.network.machines_of_run()
        gpus = run.gpus(workers), torch.cuda.device_count()
        return cls(run, run.compressor(), run.controller(), run.activations(), workers, *gpus)

    @property
    def attainable(self) -> str:
        """Text on values the target's metric can have; "" if the target's value is valid."""
        target = self.run.target
        metric = target.metric or self.run.dataset.metric
        return "" if target.value is None else beyond(metric, target.value)

    @property
    def is_real(self) -> bool:
        """True for packets between devices that are not emulated."""
        return not self.run.network.in_process and self.run.emulation.is_measured

    def serves(self, *modes: str) -> bool:
        """Return True if the run has a parameter server in one of these modes."""
        return self.run.parallel.mode in modes


Value = Callable[[Combination], Any]
ELSEWHERE: dict[str, Value] = {  # values of keys that are not fields of a run
    "compressor": lambda c: c.compressor,
    "controller": lambda c: c.controller,
    "controller.density": lambda c: c.controller.density(None),
    "controller.agree": lambda c: c.run.agree,
    "activations": lambda c: c.activations,
    "network/device": lambda c: (c.run.network.device or {}).get("name", "costs of its own"),
    "network.alike": lambda c: getattr(c.run.network, "alike", False),
}


class Beside(NamedTuple):
    """Condition on other settings under which a constraint applies: its text and its test."""

    said: str
    applies: Callable[[Combination], bool]


class Constraint(NamedTuple):
    """Rule: if the condition `beside` applies, `key` must be `must`, for the reason `why`.

    Braces in texts are replaced by a run's values. `breaks(combination, value)` returns True if the
    value of `key` breaks the rule. It may instead raise an error that says what is wrong.
    """

    beside: Beside
    key: str
    must: str
    why: str
    breaks: Callable[[Combination, Any], bool | None]

    def said(self) -> str:
        return ", ".join(filter(None, (f"{self.must} {self.beside.said}".strip(), self.why)))

    def check(self, asked: Combination) -> None:
        """Raise BadSetting, with the key to change, if `asked` breaks this rule."""
        if not self.beside.applies(asked):
            return
        value = ELSEWHERE.get(self.key, attrgetter(f"run.{self.key}"))(asked)
        with of_part(self.key, ValueError, NetworkError, OSError):
            is_broken = self.breaks(asked, value)
        plain = value is None or isinstance(value, str | int | float | tuple)
        told = value if plain else type(value)
        require(not is_broken, self.key, told, self.said().format(c=asked))


def _is_not(*allowed: object) -> Callable[[Combination, Any], bool]:
    return lambda _, value: value not in allowed


def _reaches_every_node(c: Combination, profile: Any) -> None:
    for node in range(c.run.nodes):
        for way in WAYS:
            profile.link(0.0, node, way)


def _can_come_up(c: Combination, network: Any) -> None:
    asked = c.run.nodes, c.run.profile, c.run.emulation.dilation
    network.check(*asked)
    if isinstance(network, Shaping):
        network.check_followed(*asked)


def _fits_the_data(c: Combination, model: Any) -> None:
    data = c.run.dataset
    if LISTED.applies(c):
        return  # a list of tensors needs no data
    key = json.dumps([c.run.deciding[part] for part in ("model", "dataset")], sort_keys=True)
    if key not in _tried:
        _tried[key] = misfit(model, data)
    if why := _tried[key]:
        raise ValueError(f"{model.name} does not go with data set {data.name}: {why}")


def _fits_in_memory(c: Combination, model: Any) -> None:
    """Raise ValueError if weights and gradients need more memory than this machine has."""
    if not c.run.emulation.is_replay:  # a replay needs only shapes
        nbytes = 2 * sum(each.nbytes for each in c.run.shapes().parameters())
        if nbytes > MEMORY_BYTES:
            has = f"{MEMORY_BYTES / 2**30:.0f} GiB of memory"
            needs = f"{nbytes / 2**30:.3g} GiB for weights and gradients"
            raise ValueError(f"{model.name} needs {needs}, and this machine has {has}")


def _has_batches(c: Combination, batch_size: int) -> None:
    """Raise ValueError if a step needs more samples than exist, or over a day of computation."""
    run = c.run
    replicas = run.workers // run.parallel.ranks
    asked = batch_size * run.accumulate * replicas
    if not run.emulation.is_replay and (asked > FEW_SAMPLES or isinstance(run.dataset, OwnData)):
        count = _samples_of(c)
        if count and asked > count:  # an empty data set fails its own check
            raise ValueError(
                f"must be at most {count}, the samples of {run.dataset.name}, together with "
                f"accumulate and workers, got {batch_size} x {run.accumulate} x {replicas}"
            )
    if not run.emulation.is_measured and run.times is not None:
        times = run.times.at(batch_size)
        step_s = run.accumulate * (times.forward_s + times.backward_s)
        if step_s > DAY_S:
            raise ValueError(
                f"must be such that a step computes for at most {DAY_S} s, together with "
                f"accumulate, got {batch_size} x {run.accumulate}, which take {step_s:.3g} s"
            )


def _samples_of(c: Combination) -> int | None:
    """Return the number of training samples, published or counted; None if the data is missing."""
    published = getattr(c.run.dataset, "published", None)
    key = json.dumps(c.run.deciding["dataset"], sort_keys=True)
    if published is None and key not in _counted:
        try:
            _counted[key] = len(c.run.dataset.train())
        except FileNotFoundError:  # `harness.validation` reports it
            return None
    return published or _counted[key]


def _can_be_cut(c: Combination, parallel: Parallel) -> None:
    shapes, shape = c.run.shapes(), c.run.dataset.shape
    if parallel.ranks == 1:
        before_cuts(shapes, shape, parallel)
    else:
        cuts_of(shapes, shape, parallel.stages, parallel.cuts)


def _can_be_dealt(c: Combination, fragments: int) -> None:
    layout: Any = c.run.parallel
    fragments_of(c.run.shapes(), fragments, layout.pattern)


def _keeps(controller: Any) -> bool:
    """Return True if the controller chooses the horizon and its density is always 1."""
    return controller.chooses_horizon and getattr(controller, "d_min", 1.0) == 1


def _can_go_on(c: Combination, path: str) -> None:
    begin = resume.resumed(path)
    assert begin is not None  # a path is given
    resume.check(c.run, begin, c.workers_here)
    then, now = begin.manifest.device, c.run.device_type(c.workers_here)
    if then != now:
        raise ValueError(f"was trained on {then}, and here device is {now}")


def _share(c: Combination, threads: int) -> bool:
    """Return True if several threads of a trainer would overwrite the compressor's state."""
    keeps = any(isinstance(one, dict | list) for one in vars(c.compressor).values())
    return threads > 1 and keeps and not c.compressor.shares_state


def _is_uncharged(c: Combination, device: str) -> bool:
    emulated = not c.is_real and c.run.parallel.is_charged
    return bool((c.run.network.device or {}).get("costs")) and not emulated


COMPRESSOR = "with {c.compressor.__class__.__name__}"
RUN = Beside("", lambda c: True)
ENDED = Beside("with target.ends_run", lambda c: c.run.target.ends_run)
SGD = Beside("with optimizer.kind=sgd", lambda c: c.run.optimizer.kind == "sgd")
ADAM = Beside("with optimizer.kind={c.run.optimizer.kind}", lambda c: not SGD.applies(c))
FORGETS = Beside("without error_feedback", lambda c: not c.run.error_feedback)
REPLAY = Beside("with emulation.compute=replay", lambda c: c.run.emulation.is_replay)
TRAINS = Beside("with emulation.compute={c.run.emulation.compute}", lambda c: not REPLAY.applies(c))
UNTIMED = Beside("for model {c.run.model.name}", lambda c: c.run.times is None)
LISTED = Beside("for model {c.run.model.name}",
                lambda c: getattr(c.run.model, "has_no_forward", False))  # fmt: skip
WATCHED = Beside("of model {c.run.model.name}", lambda c: c.run.watch is not None)
RESUMED = Beside("of the same settings", lambda c: c.run.resume_from is not None)
CUDA = Beside("for {c.workers_here} workers on {c.gpus_here} GPUs",
              lambda c: c.run.device == "cuda")  # fmt: skip
ON_CPUS = Beside("on CPUs", lambda c: c.run.device_type(c.workers_here) == "cpu")
CUT = Beside("for model {c.run.model.name}", lambda c: c.run.parallel.has_cuts)
WHOLE = Beside("with parallel=data", lambda c: c.run.parallel.kind == "data")
TWO_LEVELS = Beside("with parallel.levels=2", lambda c: c.run.parallel.levels == 2)
SPLIT = Beside("with parallel=split", lambda c: c.run.parallel.kind == "split")
PIPELINE = Beside("with parallel=pipeline", lambda c: c.run.parallel.kind == "pipeline")
SERVER = Beside("with parallel=server", lambda c: c.serves(*MODES))
LOCAL = Beside("with parallel=local", lambda c: c.run.parallel.is_local)
GOSSIP = Beside("with parallel.peers=pair", lambda c: c.run.parallel.is_gossip)
UNROUNDED = Beside("with controller {c.controller.__class__.__name__}",
                   lambda c: c.controller.chooses_horizon)  # fmt: skip
LAGGING = Beside("with parallel.lag above 0", lambda c: c.run.parallel.lag > 0)
SYNC = Beside("with parallel.mode=sync", lambda c: c.serves("sync"))
ASYNC = Beside("with parallel.mode=async", lambda c: c.serves("async"))
REAL_SERVER = Beside("with parallel=server over packets",
                     lambda c: c.serves(*MODES) and not c.run.network.in_process)  # fmt: skip
UNFED = Beside(COMPRESSOR, lambda c: "error_feedback" in c.compressor.replaces)
UNPUSHED = Beside(COMPRESSOR, lambda c: "optimizer.momentum" in c.compressor.replaces)
UNPUSHED_OUTSIDE = Beside(f"with parallel=local {COMPRESSOR}",
                          lambda c: LOCAL.applies(c) and UNPUSHED.applies(c))  # fmt: skip
UNSIZED = Beside(COMPRESSOR, lambda c: c.compressor.elements(Size([1]), 0) is None)
LEVELLED = Beside(COMPRESSOR, lambda c: c.compressor.has_level)
LEVELLESS = Beside(COMPRESSOR, lambda c: not c.compressor.has_level)
UNIFORM = Beside(COMPRESSOR, lambda c: c.compressor.uniform_density and not c.serves("async"))
VIRTUAL = Beside("in virtual time", lambda c: c.run.network.in_process)
PACKETS = Beside("over packets", lambda c: not c.run.network.in_process)
MEASURED = Beside("over packets with emulation.compute=measured", lambda c: c.is_real)
APART = Beside("where compression does not take turns with backward",
               lambda c: c.is_real or c.run.emulation.compression == "own")  # fmt: skip

CONSTRAINTS = (
    Constraint(RUN, "workers_per_node", "a divisor of workers={c.run.workers}",
               "as every node has as many", lambda c, shared: c.run.workers % shared > 0),
    Constraint(RUN, "profile", "one with a link for each node", "up and down", _reaches_every_node),
    Constraint(RUN, "network", "one that this machine can bring up",
               "for these nodes, with a profile that it can follow", _can_come_up),
    Constraint(RUN, "target.metric", "{c.run.dataset.metric} or loss",
               "as data set {c.run.dataset.name} has it, or null for the first",
               lambda c, metric: metric not in (None, c.run.dataset.metric, "loss")),
    Constraint(RUN, "target.value", "{c.attainable}", "", lambda c, _: bool(c.attainable)),
    Constraint(RUN, "model", "one for samples and classes of the data set",
               "with a gradient for every parameter", _fits_the_data),
    Constraint(RUN, "model", "one that fits in this machine's memory", "", _fits_in_memory),
    Constraint(RUN, "batch_size", "such that the data set has samples for a step",
               "with accumulate and workers", _has_batches),
    Constraint(ENDED, "target.value", "a number", "whose first evaluation is the end",
               lambda _, value: value is None),
    Constraint(SGD, "optimizer.beta_2", f"{BETA_2}", "which has none", _is_not(BETA_2)),
    Constraint(ADAM, "optimizer.nesterov", "false", "which looks no step ahead", _is_not(False)),
    Constraint(FORGETS, "residual_decay", "1", "which it is a part of", _is_not(1)),
    Constraint(UNTIMED, "emulation.compute", "measured",
               "which has no published times; or give model.times", _is_not("measured")),
    Constraint(LISTED, "emulation.compute", "replay", "which is a list of tensors",
               _is_not("replay")),
    Constraint(TRAINS, "network.alike", "false", "whose workers have gradients of their own",
               _is_not(False)),
    Constraint(WHOLE, "activations", "dense", "where the model has no cuts",
               lambda _, scheme: not isinstance(scheme, Dense)),
    Constraint(TWO_LEVELS, "workers_per_node", "in [2, workers={c.run.workers})",
               "which adds up inside every node and exchanges between nodes",
               lambda c, shared: not 2 <= shared < c.run.workers),
    Constraint(TWO_LEVELS, "compressor", "one that works on any part of a bucket",
               "whose workers compress shards of matrices",
               lambda _, compressor: compressor.needs_shapes),
    Constraint(TWO_LEVELS, "network.alike", "false", "whose workers have shards of their own",
               _is_not(False)),
    Constraint(TWO_LEVELS, "watch", "null", "whose workers compress sums over a node",
               _is_not(None)),
    Constraint(SPLIT, "emulation.compute", "measured or paced", "where nothing crosses a network",
               _is_not("measured", "paced")),
    Constraint(CUT, "parallel", "one with cuts that the model can have",
               "a chain, or a transformer with parallel=split", _can_be_cut),
    Constraint(PIPELINE, "parallel.stages", "a divisor of workers={c.run.workers}",
               "as pipelines are of one length", lambda c, stages: c.run.workers % stages > 0),
    Constraint(PIPELINE, "workers_per_node", "1", "whose stages have a node each", _is_not(1)),
    Constraint(PIPELINE, "overlap", "per_bucket",
               "whose gradients are exchanged after backward in any case",
               _is_not("per_bucket")),
    Constraint(PIPELINE, "network.alike", "false", "whose stages differ", _is_not(False)),
    Constraint(REPLAY, "watch", "null", "which trains nothing", _is_not(None)),
    Constraint(REPLAY, "precision", "float32", "which trains nothing", _is_not("float32")),
    Constraint(REPLAY, "resume_from", "null", "which trains nothing", _is_not(None)),
    Constraint(WATCHED, "watch", "of names of its parameters", "if of gradients",
               lambda c, watch: watch.check([n for n, _ in c.run.shapes().named_parameters()])),
    Constraint(SERVER, "network", "on one machine", "whose server is started with its workers",
               lambda _, network: network.machines_of_run() > 1),
    Constraint(SERVER, "network.alike", "false", "whose workers are served one after the other",
               _is_not(False)),
    Constraint(REAL_SERVER, "emulation.compute", "measured or paced", "where there is a model",
               _is_not("measured", "paced")),
    Constraint(SERVER, "workers_per_node", "1", "whose workers have a node each", _is_not(1)),
    Constraint(SERVER, "device", "cpu or auto", "whose processes know no GPU",
               _is_not("cpu", "auto")),
    Constraint(SERVER, "activations", "dense",
               "whose trainers have the whole model: the server's weights have one version, and "
               "stages would each push a part of another",
               lambda _, scheme: not isinstance(scheme, Dense)),
    Constraint(SERVER, "compressor", "one that sends each worker's gradient by itself",
               "which has no all-to-all, and no second message after the mean of the first",
               lambda _, compressor: not compressor.pushes),
    Constraint(SERVER, "overlap", "per_bucket",
               "whose pushes follow backward in any case", _is_not("per_bucket")),
    Constraint(SERVER, "emulation.compression", "null",
               "where nothing is compressed during backward", _is_not(None)),
    Constraint(SERVER, "emulation.hooks", "null", "where nothing is sent during backward",
               _is_not(None)),
    Constraint(SERVER, "emulation.interference", "1",
               "where nothing is compressed during backward", _is_not(1)),
    Constraint(LOCAL, "parallel.fragments", "at most the model's layers", "", _can_be_dealt),
    Constraint(LOCAL, "activations", "dense", "where the model has no cuts",
               lambda _, scheme: not isinstance(scheme, Dense)),
    Constraint(LOCAL, "overlap", "per_bucket",
               "whose fragments are sent after backward in any case; parallel.lag hides them",
               _is_not("per_bucket")),
    Constraint(LOCAL, "watch", "null", "where gradients are not what is compressed",
               _is_not(None)),
    Constraint(GOSSIP, "compressor", "dense", "whose workers send each other their weights",
               lambda _, compressor: not isinstance(compressor, DenseGradient)),
    Constraint(GOSSIP, "controller", "fixed", "whose rounds are of one length",
               lambda _, controller: not isinstance(controller, Fixed)),
    Constraint(GOSSIP, "workers_per_node", "1", "whose workers have a node each", _is_not(1)),
    Constraint(GOSSIP, "network.alike", "false", "whose workers meet in pairs", _is_not(False)),
    Constraint(UNROUNDED, "parallel", "local", "which chooses how many steps workers take alone",
               lambda _, layout: not layout.is_local),
    Constraint(UNROUNDED, "controller.agree", "min or mean", "whose rounds all take alike",
               _is_not("min", "mean")),
    Constraint(LAGGING, "emulation.compression", "own or null",
               "where it goes on beside the steps that hide it", _is_not("own", None)),
    Constraint(LAGGING, "emulation.interference", "1", "where it goes on beside computation",
               _is_not(1)),
    Constraint(SYNC, "parallel.threads", "1", "whose workers wait for each other", _is_not(1)),
    Constraint(ASYNC, "controller.agree", "local", "whose workers do not wait for each other",
               _is_not("local")),
    Constraint(SERVER, "parallel.threads", "1", "whose threads would share what a compressor keeps",
               _share),
    Constraint(SERVER, "parallel.threads", "1", "whose threads share a stream of text",
               lambda c, threads: threads > 1 and c.run.dataset.metric == "perplexity"),
    Constraint(SERVER, "watch", "null", "whose threads each see some of the steps",
               lambda c, watch: watch is not None and c.run.server.threads > 1),
    Constraint(SERVER, "parallel.drain_period", "null",
               "which keeps nothing without error_feedback",
               lambda c, period: period is not None and not c.run.error_feedback),
    Constraint(UNFED, "error_feedback", "false", "which does its work", _is_not(False)),
    Constraint(UNPUSHED, "optimizer.momentum", "0", "which does its work", _is_not(0)),
    Constraint(UNPUSHED_OUTSIDE, "parallel.outer_momentum", "0", "which does its work",
               _is_not(0)),
    Constraint(UNSIZED, "fusion", "uncompressed", "which does not say what it makes of a tensor",
               _is_not("uncompressed")),
    Constraint(LEVELLED, "fusion", "uncompressed", "whose rank follows from a density",
               _is_not("uncompressed")),
    Constraint(LEVELLESS, "controller", "fixed", "which sends as many bytes at any density",
               lambda _, controller: not (isinstance(controller, Fixed) or _keeps(controller))),
    Constraint(LEVELLESS, "controller.density", "1", "which sends as many bytes at any density",
               _is_not(1)),
    Constraint(UNIFORM, "controller.agree", "min or mean", "which needs one density on all workers",
               lambda c, agree: agree == "local" and not c.controller.same_everywhere),
    Constraint(CUDA, "device", "cpu or auto",
               f"one each, or one for all with backend={BETWEEN_CPUS.name}",
               lambda c, _: c.gpus_here < c.gpus_needed),
    Constraint(VIRTUAL, "backend", "auto", "which sends nothing", _is_not("auto")),
    Constraint(SERVER, "backend", "auto", "whose messages are its own", _is_not("auto")),
    Constraint(ON_CPUS, "backend", f"{BETWEEN_CPUS.name} or auto",
               "between which NCCL sends nothing",
               _is_not(BETWEEN_CPUS.name, "auto")),
    Constraint(RESUMED, "resume_from", "a run or checkpoint", "made on such a device", _can_go_on),
    Constraint(MEASURED, "emulation.compression", "own or null",
               "where nobody says when the device is free", _is_not("own", None)),
    Constraint(PACKETS, "network/device", "measured",
               "where compression takes what it takes here, but for parallel=data with "
               "emulation.compute=paced or replay", _is_uncharged),
    Constraint(APART, "emulation.interference", "1",
               "which it does with emulation.compression=device of an emulated device", _is_not(1)),
)  # fmt: skip


def check(run: Run, *keys: str) -> None:
    """Raise BadSetting at the first constraint that `run` breaks, of those on `keys` if any."""
    asked = Combination.of(run)
    for row in CONSTRAINTS:
        if not keys or row.key in keys:
            row.check(asked)


def reference() -> Iterator[str]:
    """Yield the lines of the table for a reader; <name> stands for a run's own value."""
    width = max(len(row.key) for row in CONSTRAINTS)
    groups: dict[str, list[str]] = {}
    for row in CONSTRAINTS:
        told = ", ".join(filter(None, (row.must, row.why)))
        group = groups.setdefault(_open(row.beside.said) or "always", [])
        group.append(f"  {row.key:{width}}  {_open(told)}")
    for beside, lines in groups.items():
        yield from (f"{beside}:", *lines)


def _open(text: str) -> str:
    return sub(r"\{c\.(?:run\.)?([\w.]+)\}", r"<\1>", text.replace(".__class__.__name__", ""))
