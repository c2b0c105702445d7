"""What runs would take, before any is started: `plan=true` in place of running.

Each setting is replayed in virtual time under its own profile, with gradients of true sizes that
mean nothing: some steps at the beginning, then some that stand for as many others each, all over
the run. Computation takes the published times, or those of one worker on this machine where it is
measured; compression takes what it takes here, unless it is given. What depends on the number of a
step or on the gradients themselves, such as a warm-up, is seen only as far as those steps go, and
no target ends a run.
"""

import copy
import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.analysis import load
from harness.pipeline.layout import Data
from harness.records import TABLES, Table
from harness.settings import BadSetting, Settings, leaves
from harness.simulate.assembly import assembled
from harness.simulate.network import Simulated, SimulatedDumbbell
from harness.simulate.run import as_in_a_rank
from harness.simulate.train import Loop, WorkerError

FIRST, SPREAD = 8, 16  # steps that are simulated: at the beginning, and over the rest of the run
COMPUTED = 7  # real steps, where computation is measured; the first two are left out
NEVER_S = 3600.0  # between rows of links.csv


class Prediction(NamedTuple):
    """Of one run; times are emulated seconds, those of a step are means."""

    steps: int
    time_s: float
    real_s: float | None  # on this machine, but for its start and evaluations; None: simulated
    sent_bytes: float  # by each worker, in all
    samples_per_s: float  # of all workers
    density: float
    step_s: float
    before_s: float
    compute_s: float
    compress_s: float
    exposed_s: float


def stand_in(settings: Settings) -> Settings:
    """The settings that are replayed for `settings`: of the same conditions, in virtual time."""
    config = copy.deepcopy(settings.config)
    told = config["network"]
    simulated = _is_simulated(settings)
    if not simulated:
        kind = SimulatedDumbbell if ".dumbbell." in told["_target_"] else Simulated
        known = {each.name: told.get(each.name, each.default) for each in fields(kind)}
        config["network"] = {"_target_": f"{kind.__module__}.{kind.__name__}", **known}
        config["network"] |= {"real_seconds": True}
    config["network"] |= {"alike": True, "sample_s": NEVER_S, "timeline_steps": 0}
    config["emulation"]["compute"] = "replay"
    config |= {"precision": "float32", "resume_from": None, "initial_weights": None}
    return Settings(config)


def check(settings: Settings) -> None:
    """Raise BadSetting for what cannot be planned."""
    if not isinstance(layout := settings.build("parallel"), Data):
        kind = type(layout).__name__.lower()
        raise BadSetting(
            f"plan must be false with parallel={kind}, which is not replayed, got True"
        )
    known = stand_in(settings)
    if settings["emulation.compute"] == "measured":
        known = _of_one_worker(settings)
    known.check()
    total_steps(settings)


def predict(settings: Settings, times: dict[str, Any] | None = None) -> Prediction:
    """Replay `settings`; leaves nothing behind. `times` are those of measured computation."""
    known, steps = stand_in(settings), total_steps(settings)
    if settings["emulation.compute"] == "measured":
        known.config["model"]["times"] = times or times_here(settings)
    some = min(steps, FIRST + SPREAD)
    known.config.update(steps=some, epochs=None)
    weights = np.ones(some)
    weights[FIRST:] = (steps - FIRST) / max(1, some - FIRST) if some > FIRST else 1.0
    with _loop(known) as (loop, turns, folder):
        loop.tell = _skipping(loop, weights)
        loop.run(turns)
        rows = load.steps(folder)
        time_s = loop.sides[0].end_s
    return _of(settings, rows[rows["rank"] == 0], weights, time_s)


def _of(settings: Settings, rows: pd.DataFrame, weights: np.ndarray, time_s: float) -> Prediction:
    steps = float(weights.sum())
    mean = {name: float(np.average(rows[name], weights=weights)) for name in MEANS}
    return Prediction(
        steps=round(steps),
        time_s=time_s,
        real_s=None if _is_simulated(settings) else time_s * settings["emulation.dilation"],
        sent_bytes=mean.pop("sent_bytes") * steps,
        samples_per_s=settings["workers"] * float(rows.samples.iloc[0]) * steps / time_s,
        step_s=time_s / steps,
        **mean,
    )


MEANS = ("sent_bytes", "density", "before_s", "compute_s", "compress_s", "exposed_s")


def _skipping(loop: Loop, weights: np.ndarray) -> Callable[[], None]:
    """Called after every step: lets as much time go by as the steps that it stands for take."""
    ended_s = 0.0

    def skip() -> None:
        nonlocal ended_s
        took_s = loop.sides[0].end_s - ended_s
        for side in loop.sides:
            side.end_s += (weights[loop.done - 1] - 1) * took_s
        ended_s = loop.sides[0].end_s

    return skip


@contextmanager
def _loop(settings: Settings) -> Any:
    """Of a run in virtual time, its threads and its folder, for a while."""
    sharing, dilation = settings["workers_per_node"], settings["emulation.dilation"]
    nodes = settings["workers"] // sharing
    network, profile, seed = settings.build("network"), settings.build("profile"), settings["seed"]
    costs = network.costs(profile, nodes, sharing, dilation, seed)
    with TemporaryDirectory(prefix="gradnet-plan-") as name:
        folder = Path(name)
        for table in TABLES:
            Table(folder, table).header()
        with as_in_a_rank(seed, settings["network.threads"]):
            loop, turns = assembled(folder, settings, costs, None, lambda: None)
            try:
                yield loop, turns, folder
            except WorkerError as error:
                raise BadSetting(f"plan: {error}") from error
            finally:
                turns.close()


def times_here(settings: Settings) -> dict[str, Any]:
    """Forward and backward of one worker on this machine, as a model's published times."""
    with _loop(_of_one_worker(settings)) as (loop, _, _):
        computed = [loop.gradients.compute(0) for _ in range(COMPUTED)][2:]
    dilation = settings["emulation.dilation"]
    return {
        "_target_": "harness.models.base.Times",
        "forward_s": median(each.forward_s for each in computed) / dilation,
        "backward_s": median(each.backward_s for each in computed) / dilation,
        "batch_size": settings["batch_size"],
        "device": "this machine",
        "source": f"{COMPUTED} steps of one worker",
    }


def _of_one_worker(settings: Settings) -> Settings:
    config = copy.deepcopy(settings.config) | {"workers": 1, "workers_per_node": 1}
    config["network"] = stand_in(settings)["network"] | {"alike": False}
    config["resume_from"] = None
    return Settings(config)


def total_steps(settings: Settings) -> int:
    """Of the run; BadSetting where the data that decides it is missing."""
    if settings["steps"]:
        return settings["steps"]
    try:
        samples = len(settings.build("dataset").train())
    except FileNotFoundError as error:
        raise BadSetting(f"plan needs steps=N, or the data that epochs count: {error}") from error
    of_a_step = settings["accumulate"] * settings["batch_size"] * settings["workers"]
    return settings.total_steps(samples // of_a_step)


def _is_simulated(settings: Settings) -> bool:
    return bool(settings.build("network").in_process)


@dataclass
class Plan:
    """All runs of a command; those that differ in their seed alone are predicted once."""

    runs: list[Settings] = field(default_factory=list)
    _known: dict[str, Prediction] = field(default_factory=dict, init=False)
    _times: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    def add(self, settings: Settings) -> Prediction:
        self.runs.append(settings)
        key = _key(settings)
        if key not in self._known:
            self._known[key] = predict(settings, self._times_of(settings))
        return self._known[key]

    def _times_of(self, settings: Settings) -> dict[str, Any] | None:
        """Computation that is measured is so once for all that compute the same."""
        if settings["emulation.compute"] != "measured":
            return None
        parts = [*OF_COMPUTATION, "emulation.dilation"]
        key = json.dumps([settings[part] for part in parts], sort_keys=True)
        if key not in self._times:
            self._times[key] = times_here(settings)
        return self._times[key]

    def settings(self) -> list[tuple[Settings, int, Prediction]]:
        """One of the runs that differ in seeds alone, how many they are, and what each takes."""
        keys = [_key(each) for each in self.runs]
        first = {key: self.runs[keys.index(key)] for key in dict.fromkeys(keys)}
        return [(each, keys.count(key), self._known[key]) for key, each in first.items()]

    def apart(self) -> list[str]:
        """What sets each of `settings` apart beside its method: `key value`, where they differ."""
        known = [deciding(settings) for settings, _, _ in self.settings()]
        keys = sorted({key for one in known for key in one if key[0] not in OF_A_METHOD})
        differ = [key for key in keys if len({str(one.get(key)) for one in known}) > 1]
        return [", ".join(f"{key[-1]} {one[key]}" for key in differ if key in one) for one in known]


OF_COMPUTATION = (
    "model",
    "dataset",
    "batch_size",
    "accumulate",
    "precision",
    "device",
    "emulation",
)
OF_A_METHOD = ("method", "compressor", "controller", "error_feedback", "residual_decay", "overlap")


def _key(settings: Settings) -> str:
    return json.dumps(sorted((".".join(k), str(v)) for k, v in deciding(settings).items()))


def deciding(settings: Settings) -> dict[tuple[str, ...], Any]:
    """Every value but the seeds; a profile has one of its own, which is a condition."""
    values = leaves(settings.config)
    return {key: value for key, value in values if key[-1] != "seed" or key[0] == "profile"}
