"""What runs would take, before any is started: `plan=true` in place of running.

Each setting is replayed in virtual time under its own profile, with gradients of true sizes that
mean nothing: some steps at the beginning, then some that stand for as many others each, all over
the run. Computation takes the published times, or those of one worker on this machine where it is
measured and the data is here; compression takes what it takes here, unless it is given. What
depends on the number of a step or on the gradients themselves, such as a warm-up, is seen only as
far as those steps go, and no target ends a run.
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
from harness.config.local_steps import LocalSteps
from harness.config.network import NetworkChoice
from harness.config.parallel import Data, Split
from harness.config.run import Run
from harness.config.settings import BadSetting, Settings
from harness.config.typed import leaves
from harness.emulation.dumbbell import Dumbbell
from harness.engine.exchange.exchange_stats import Exchanged
from harness.engine.training.train import UNSETTLED_STEPS, Loop
from harness.records.run_directory import TABLES, Table
from harness.reporting.analysis import load
from harness.validation import check_fit
from harness.virtual.costs import Costs
from harness.virtual.crew import virtual
from harness.virtual.network import Simulated, SimulatedDumbbell, SimulatedWan
from harness.virtual.ranks import VirtualRun, WorkerError
from harness.virtual.run import as_in_a_rank
from harness.workloads.models.base import Times

FIRST, SPREAD = 8, 16  # steps that are simulated: at the beginning, and over the rest of the run
COMPUTED = 7  # real steps, where computation is measured; the first two are left out
REAL_SECONDS = ("alpha_s", "operation_s", "wake_s", "burst_s", "packet_s", "update_s")
NEVER_S = 3600.0  # between rows of links.csv


class Prediction(NamedTuple):
    """Prediction of one run in emulated seconds; times of a step are means."""

    steps: Annotated[int, Column(shown=True)]
    time_s: Annotated[float, Column(shown=True)]
    real_s: float | None  # on this machine, but for its start and evaluations; None: simulated
    samples_per_s: Annotated[float, Column("of all workers", "samples/s", shown=True)]
    density: Annotated[float, Column(shown=True)]
    sent_bytes: Annotated[float, Column("in all", "MB sent a worker", shown=True)]
    compute_before_first_bucket_s: Annotated[float, Column(title="step: before", shown=True)]
    compute_s: Annotated[float, Column(shown=True)]
    compress_s: Annotated[float, Column(shown=True)]
    exposed_s: Annotated[float, Column(shown=True)]
    step_s: Annotated[float, Column(title="in all (s)", shown=True)]


def stand_in(run: Run) -> Run:
    """Run to replay in place of `run`: the same conditions, in virtual time."""
    layout, activations = run.parallel, run.activations
    if type(layout) is Split:  # nothing crosses a network at its cuts
        layout, activations = Data(), Dense
    network = run.network
    if not isinstance(network, Simulated):
        network = simulated(network, run.emulation.dilation)
    meets_in_pairs = isinstance(layout, LocalSteps) and layout.is_gossip
    alike = layout.ranks == 1 and not layout.servers and not meets_in_pairs
    return replace(
        run,
        parallel=layout,
        activations=activations,
        network=replace(network, alike=alike, sample_s=NEVER_S, timeline_steps=0),
        emulation=replace(run.emulation, compute="replay"),
        precision="float32",
        resume_from=None,
        initial_weights=None,
        watch=None,
    )


def simulated(network: NetworkChoice, dilation: float) -> Simulated:
    """Latencies are of this machine; what compression takes is the device's, where there is one."""
    kind = SimulatedDumbbell if isinstance(network, Dumbbell) else Simulated
    if getattr(network, "sites", None) is not None:
        kind = SimulatedWan
    names = [each.name for each in fields(kind) if hasattr(network, each.name)]
    twin = kind(**{name: getattr(network, name) for name in names})
    if not (network.device or {}).get("costs"):
        return replace(twin, real_seconds=True)
    return replace(twin, **{key: getattr(twin, key) / dilation for key in REAL_SECONDS})


def check(run: Run) -> None:
    """Raise BadSetting for what cannot be planned."""
    check_fit(stand_in(run))
    if is_measured(run):
        check_fit(_of_one_worker(run))


def predict(run: Run, times: Times | None = None) -> Prediction:
    """Replay `run`; leaves nothing behind. `times` are those of measured computation."""
    steps = run.steps
    first, spread = _looked_at(run)
    some = min(steps, first + spread)
    known = replace(stand_in(run), steps=some)
    if is_measured(run):
        known = replace(known, times=times or times_here(run))
    weights = np.ones(some)
    weights[first:] = (steps - first) / max(1, some - first) if some > first else 1.0
    with for_a_while(known) as (folder, costs):
        world = virtual(known)(folder, known, costs, None, lambda: None, lambda step: weights[step])
        time_s = max(each.end_s for each in world.run())
        rows = load.steps(folder).groupby("step").mean(numeric_only=True)
    return _of(run, rows, weights, time_s)


def _looked_at(run: Run) -> tuple[int, int]:
    """Steps simulated at the beginning, and over the rest; of local steps they are whole rounds."""
    layout = run.parallel
    if not isinstance(layout, LocalSteps):
        return FIRST, SPREAD
    rounds = -(-SPREAD // layout.h)
    return layout.warmup_rounds + layout.h, rounds * layout.h


def replayed(known: Run) -> pd.DataFrame:
    """The first rank's steps of a replay, as they are recorded; leaves nothing behind."""
    with for_a_while(known) as (folder, costs):
        VirtualRun(folder, known, costs, None, lambda: None).run()
        rows = load.steps(folder)
    return rows[rows["rank"] == 0]


def _of(run: Run, rows: pd.DataFrame, weights: np.ndarray, time_s: float) -> Prediction:
    steps = float(weights.sum())
    known = {name: rows[name].notna().to_numpy() * weights for name in MEANS}  # not all exchange
    mean = {
        name: float((rows[name].fillna(0) * share).sum() / (share.sum() or np.nan))
        for name, share in known.items()
    }
    return Prediction(
        steps=round(steps),
        time_s=time_s,
        real_s=None if run.network.in_process else time_s * run.emulation.dilation,
        sent_bytes=mean.pop("sent_bytes") * steps,
        samples_per_s=run.workers * float(rows.samples.iloc[0]) * steps / time_s,
        step_s=time_s / steps,
        **mean,
    )


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
    """A folder for a run in virtual time, and what its network costs."""
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
    """Forward and backward of one worker on this machine, as a model's published times."""
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
    """One worker of `run`, which sends nothing: its network is a star, which one node can have."""
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
    """True if computation is to be measured and can be: the files it needs are here."""
    if not run.emulation.is_measured:
        return False
    try:
        run.find_files()
    except FileNotFoundError:
        return False
    return True


class PlannedRun(NamedTuple):
    """A run of the command, and every value of it but the seeds."""

    run: Run
    values: dict[tuple[str, ...], Any]


@dataclass
class Plan:
    """All runs of a command; those that differ in their seed alone are predicted once."""

    planned: list[PlannedRun] = field(default_factory=list)
    _known: dict[str, Prediction] = field(default_factory=dict, init=False)
    _times: dict[str, Times] = field(default_factory=dict, init=False)

    def add(self, settings: Settings, run: Run) -> Prediction:
        """`run` is that of `settings`, or one that tells of it."""
        planned = PlannedRun(run, deciding(settings))
        self.planned.append(planned)
        key = key_of(planned.values)
        if key not in self._known:
            self._known[key] = predict(run, self._times_of(planned))
        return self._known[key]

    def _times_of(self, planned: PlannedRun) -> Times | None:
        """Computation that is measured is so once for all that compute the same."""
        if not is_measured(planned.run):
            return None
        key = key_of(planned.values, OF_COMPUTATION)
        if key not in self._times:
            self._times[key] = times_here(planned.run)
        return self._times[key]

    def assumed(self) -> str:
        """Note on computation that is planned otherwise than it would run; "" if there is none."""
        for run, _ in self.planned:
            if run.emulation.is_measured and run.times and not is_measured(run):
                device = run.times.device
                return f"Computation by published times ({device}): its data is not here."
        return ""

    def settings(self) -> list[tuple[PlannedRun, int, Prediction]]:
        """One of the runs that differ in seeds alone, how many they are, and what each takes."""
        keys = [key_of(each.values) for each in self.planned]
        first = {key: self.planned[keys.index(key)] for key in dict.fromkeys(keys)}
        return [(each, keys.count(key), self._known[key]) for key, each in first.items()]

    def apart(self) -> list[str]:
        """Label each of `settings` with the `key value` pairs, method apart, that tell it apart."""
        known = [planned.values for planned, _, _ in self.settings()]
        keys = sorted({key for one in known for key in one if key[0] not in sweep.OF_A_METHOD})
        differ = [key for key in keys if len({str(one.get(key)) for one in known}) > 1]
        return [", ".join(f"{key[-1]} {one[key]}" for key in differ if key in one) for one in known]


OF_COMPUTATION = "model dataset batch_size accumulate precision device emulation".split()


def key_of(values: dict[tuple[str, ...], Any], sections: Sequence[str] = ()) -> str:
    """Equal where the values in all `sections` are; of none: where all are."""
    told = [(k, v) for k, v in values.items() if not sections or k[0] in sections]
    return json.dumps(sorted((".".join(key), str(value)) for key, value in told))


def deciding(settings: Settings) -> dict[tuple[str, ...], Any]:
    """Values that set a run apart, without its seeds; a profile's own seed is one of them."""
    follows = settings["network_seed"]
    return {
        key: value
        for key, value in leaves(settings.config)
        if key != ("network_seed",)
        and (key[-1] != "seed" or (key[0] == "profile" and value != follows))
    }
