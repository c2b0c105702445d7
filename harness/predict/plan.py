"""Predict the times of runs without doing them, for `plan=true` and for cost estimates.

Each setting is replayed in virtual time under its own profile, with gradients of the true sizes but
without values. The replay has the first steps, then some that stand for several others each, spread
over the run. Computation takes the published times; if it is measured and the data is here, it
takes the times of one worker on this machine. Compression takes its time on this machine, unless a
device gives its costs. Changes that depend on the step or on the gradients, such as a warm-up, are
only seen in the replayed steps, and no target ends a run.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from compressors.activations.dense import Dense
from controllers.base import Column
from harness.config import sweep
from harness.config.network import NetworkChoice
from harness.config.parallel import Data
from harness.config.run import Run
from harness.config.settings import BadSetting, Settings
from harness.config.typed import leaves
from harness.engine.exchange.stats import Exchanged
from harness.engine.training.train import UNSETTLED_STEPS, Loop
from harness.records.run_directory import TABLES, Table
from harness.reporting.analysis import load
from harness.validation import check_fit
from harness.virtual.costs import Costs
from harness.virtual.crew import virtual
from harness.virtual.network import TWINS, Simulated
from harness.virtual.ranks import VirtualRun, Weight, WorkerError
from harness.virtual.run import as_in_a_rank
from harness.workloads.models.base import Times

FIRST, SPREAD = 8, 16  # replayed steps: at the beginning, and over the rest of the run
COMPUTED = 7  # real steps to measure computation; the first two are left out
REAL_SECONDS = ("alpha_s", "operation_s", "wake_s", "burst_s", "packet_s", "update_s")
NEVER_S = 3600.0  # seconds between rows of links.csv, which a plan does not need


class Prediction(NamedTuple):
    """Prediction of one run, in emulated seconds; values per step are means."""

    steps: Annotated[int, Column(shown=True)]
    time_s: Annotated[float, Column(shown=True)]
    real_s: float | None  # on this machine, without start and evaluations; None: virtual
    samples_per_s: Annotated[float, Column("of all workers", "samples/s", shown=True)]
    density: Annotated[float, Column(shown=True)]
    sent_bytes: Annotated[float, Column("in all", "MB sent a worker", shown=True)]
    compute_before_first_bucket_s: Annotated[float, Column(title="step: before", shown=True)]
    compute_s: Annotated[float, Column(shown=True)]
    compress_s: Annotated[float, Column(shown=True)]
    exposed_s: Annotated[float, Column(shown=True)]
    step_s: Annotated[float, Column(title="in all (s)", shown=True)]


def stand_in(run: Run) -> Run:
    """Return the run to replay in place of `run`: same conditions, virtual time, no training."""
    layout, activations = run.parallel, run.activations
    if layout.kind == "split":  # a split run sends nothing at its cuts
        layout, activations = Data(), Dense
    network = run.network
    if not isinstance(network, Simulated):
        network = simulated(network, run.emulation.dilation)
    return replace(
        run,
        parallel=layout,
        activations=activations,
        network=replace(network, alike=layout.in_ring, sample_s=NEVER_S, timeline_steps=0),
        emulation=replace(run.emulation, compute="replay"),
        precision="float32",
        resume_from=None,
        initial_weights=None,
        watch=None,
    )


def simulated(network: NetworkChoice, dilation: float) -> Simulated:
    """Return `network` in virtual time, with this machine's latencies.

    Compression costs are the device's if it has any; otherwise they are measured here.
    """
    kind = TWINS[getattr(network, "twin", "simulated")]
    names = [each.name for each in fields(kind) if hasattr(network, each.name)]
    twin = kind(**{name: getattr(network, name) for name in names})
    if not (network.device or {}).get("costs"):
        return replace(twin, real_seconds=True)
    return replace(twin, **{key: getattr(twin, key) / dilation for key in REAL_SECONDS})


def check(run: Run) -> None:
    """Raise BadSetting if the run cannot be planned."""
    check_fit(stand_in(run))
    if is_measured(run):
        check_fit(_of_one_worker(run))


def predict(run: Run, times: Times | None = None) -> Prediction:
    """Predict `run` by a replay. `times` are its measured computation, if known."""
    steps = run.steps
    first, spread = run.parallel.sampled_steps(FIRST, SPREAD)
    some = min(steps, first + spread)
    known = replace(stand_in(run), steps=some)
    if is_measured(run):
        known = replace(known, times=times or times_here(run))
    weights = np.ones(some)
    weights[first:] = (steps - first) / max(1, some - first) if some > first else 1.0
    time_s, recorded = replay(known, lambda step: weights[step])
    rows = recorded.groupby("step").mean(numeric_only=True)
    count, mean = float(weights.sum()), {}
    for name in MEANS:
        share = rows[name].notna().to_numpy() * weights  # not every step exchanges
        mean[name] = float((rows[name].fillna(0) * share).sum() / (share.sum() or np.nan))
    return Prediction(
        steps=round(count),
        time_s=time_s,
        real_s=None if run.network.in_process else time_s * run.emulation.dilation,
        sent_bytes=mean.pop("sent_bytes") * count,
        samples_per_s=run.workers * float(rows.samples.iloc[0]) * count / time_s,
        step_s=time_s / count,
        **mean,
    )


def replay(run: Run, weight: Weight = lambda step: 1.0) -> tuple[float, pd.DataFrame]:
    """Do `run` in virtual time; return its emulated seconds and the recorded steps of all ranks.

    A step counts as `weight(step)` steps. No file is kept. Raise BadSetting if a rank fails.
    """
    with for_a_while(run) as (folder, costs):
        world = virtual(run)(folder, run, costs, None, lambda: None, weight)
        time_s = max(each.end_s for each in world.run())
        return time_s, load.steps(folder)


MEANS = (
    "sent_bytes",
    "density",
    "compute_before_first_bucket_s",
    "compute_s",
    "compress_s",
    "exposed_s",
)


@contextmanager
def for_a_while(run: Run) -> Iterator[tuple[Path, Costs]]:
    """Yield a temporary folder and network costs for a virtual run; BadSetting if it fails."""
    network, sharing = run.network, run.workers_per_node
    assert isinstance(network, Simulated)
    costs = network.costs(run.profile, run.nodes, sharing, run.emulation.dilation, run.network_seed)
    with TemporaryDirectory(prefix="gradnet-plan-") as name:
        folder = Path(name)
        for table in TABLES:
            Table(folder, table).header()
        with as_in_a_rank(run.seed, network.threads):
            try:
                yield folder, costs
            except WorkerError as error:
                raise BadSetting(f"plan: {error}") from error


def times_here(run: Run) -> Times:
    """Measure forward and backward of one worker on this machine: medians of a few steps."""
    computed: list[Exchanged] = []
    begins_s: list[float] = []

    def compute(loop: Loop) -> int:
        for _ in range(COMPUTED):
            begins_s.append(loop.clock.now())
            loop.exchange.begin(None)
            loop.gradients.compute(0)
            computed.append(loop.exchange.finish())
        return 0

    with for_a_while(known := _of_one_worker(run)) as (folder, costs):
        VirtualRun(folder, known, costs, None, lambda: None, perform=compute).run()
    pairs = list(zip(begins_s, computed, strict=True))[UNSETTLED_STEPS:]
    return Times(
        forward_s=median(took.compute_end - took.backward_s - at for at, took in pairs),
        backward_s=median(took.backward_s for _, took in pairs),
        batch_size=run.batch_size,
        device="this machine",
        source=f"{COMPUTED} steps of one worker",
    )


def _of_one_worker(run: Run) -> Run:
    """Return a run of one worker of `run`, which sends nothing, on a star network."""
    network: Any = stand_in(run).network
    network = Simulated(**{each.name: getattr(network, each.name) for each in fields(Simulated)})
    return replace(
        run,
        parallel=Data(),
        activations=Dense,
        workers=1,
        workers_per_node=1,
        accumulate=1,
        network=replace(network, alike=False),
        resume_from=None,
    )


def is_measured(run: Run) -> bool:
    """Return True if computation is to be measured and its data is on this machine."""
    if not run.emulation.is_measured:
        return False
    try:
        run.find_files()
    except FileNotFoundError:
        return False
    return True


class PlannedRun(NamedTuple):
    """A run of the command, with all its values except the seeds."""

    run: Run
    values: dict[tuple[str, ...], Any]


@dataclass
class Plan:
    """Predictions of a command's runs; runs that differ only in seeds share one."""

    planned: list[PlannedRun] = field(default_factory=list)
    _known: dict[str, Prediction] = field(default_factory=dict, init=False)
    _times: dict[str, Times] = field(default_factory=dict, init=False)

    def add(self, settings: Settings, run: Run) -> Prediction:
        """Return the prediction of `run`, which belongs to `settings` or stands in for their run.

        Computation is measured once for all runs with equal computation.
        """
        planned = PlannedRun(run, deciding(settings))
        self.planned.append(planned)
        key, computation = key_of(planned.values), key_of(planned.values, OF_COMPUTATION)
        if key not in self._known:
            if is_measured(run) and computation not in self._times:
                self._times[computation] = times_here(run)
            self._known[key] = predict(run, self._times.get(computation))
        return self._known[key]

    def assumed(self) -> str:
        """Return a note if published times replace measured computation; "" if they do not."""
        for run, _ in self.planned:
            if run.emulation.is_measured and run.times and not is_measured(run):
                device = run.times.device
                return f"Computation by published times ({device}): its data is not here."
        return ""

    def settings(self) -> list[tuple[PlannedRun, int, Prediction]]:
        """Return (run, number of runs, prediction) for each group that differs only in seeds."""
        keys = [key_of(each.values) for each in self.planned]
        first = {key: self.planned[keys.index(key)] for key in dict.fromkeys(keys)}
        return [(each, keys.count(key), self._known[key]) for key, each in first.items()]

    def apart(self) -> list[str]:
        """Label each item of `settings` by the `key value` pairs that differ, without methods."""
        known = [planned.values for planned, _, _ in self.settings()]
        keys = sorted({key for one in known for key in one if key[0] not in sweep.OF_A_METHOD})
        differ = [key for key in keys if len({str(one.get(key)) for one in known}) > 1]
        return [", ".join(f"{key[-1]} {one[key]}" for key in differ if key in one) for one in known]


OF_COMPUTATION = "model dataset batch_size accumulate precision device emulation".split()


def key_of(values: dict[tuple[str, ...], Any], sections: Sequence[str] = ()) -> str:
    """Return a text that is equal for equal values; `sections` restricts which are compared."""
    compared = [(k, v) for k, v in values.items() if not sections or k[0] in sections]
    return json.dumps(sorted((".".join(key), str(value)) for key, value in compared))


def deciding(settings: Settings) -> dict[tuple[str, ...], Any]:
    """Return the values that distinguish runs, by path: all but seeds, except a profile's own."""
    follows = settings["network_seed"]
    return {
        key: value
        for key, value in leaves(settings.config)
        if key not in (("network_seed",), ("typed",))
        and (key[-1] != "seed" or (key[0] == "profile" and value != follows))
    }
