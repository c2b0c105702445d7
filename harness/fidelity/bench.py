"""Measured machines (benches), and all the data that a prediction may use of them.

The testbed.yaml of a study is the bench of its paper's cells. A study's folder testbeds/ has
benches of benchmark rows. At most four of their rows are inputs, and `doctor --calibrate --testbed`
fits the constants to these alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from harness.config import plain_yaml
from harness.config.device_costs import SOURCE
from harness.config.search_path import choices
from harness.fidelity.measurement import BadMeasurement, Measurement, Selector, Unpredictable
from harness.studies import studies
from harness.virtual.network import Simulated
from profiles.asymmetric import Asymmetric
from profiles.base import Profile
from profiles.static import Static

Standing = Literal["counts", "input", "left out", "repeat"]
Cost = tuple[tuple[str, float], ...]  # fields of `harness.config.device_costs.Cost`
MOST_INPUTS = 4  # of benchmark rows
CROSSINGS, EGRESSES = 4, 2  # links in a round trip: all, and those out of a node
FOREVER_S = 3600.0  # update period of a network that does not change
OPTIONAL = ("default_run", "backend", "network", "rate_mbit", "ingress_mbit", "bytes", "model",
            "forward")  # fmt: skip
ROUNDED = ("window_bytes", "initial_window_bytes")
FITTED = {  # bounds of constants that may be fitted; `efficiencies` is per rate
    "efficiencies": (0.05, 1.0),
    "efficiency": (0.05, 1.0),
    "rate_mbit": (1.0, 1e6),
    "window_bytes": (1e4, 1e9),
    "initial_window_bytes": (1e3, 1e9),
    "segment_s": (1e-6, 1.0),
    "alpha_s": (1e-7, 1.0),
    "operation_s": (1e-6, 10.0),
    "compute_s": (1e-4, 1e3),
    "buffers_bytes": (1e3, 1e10),
}


class Cluster(NamedTuple):
    """Workers and their network; `per_node` workers share one network card of `rate_mbit`."""

    workers: int
    per_node: int
    rate_mbit: float
    efficiency: float
    alpha_s: float
    settings: tuple[tuple[str, Any], ...] = ()  # further network settings; mappings as pairs

    def slower(self, factor: float) -> "Cluster":
        """Return a copy of the cluster whose links deliver 1 / `factor` of the rate."""
        return self._replace(efficiency=self.efficiency / factor)


class Compute(NamedTuple):
    """Seconds of one worker's iteration without communication; `batch` is None if unknown."""

    forward_s: float
    backward_s: float
    batch: int | None

    def at(self, batch: int | None) -> "Compute":
        """Return the times for `batch` samples, in proportion to the batch size."""
        if batch is None or self.batch is None:
            return self
        ratio = batch / self.batch
        return Compute(self.forward_s * ratio, self.backward_s * ratio, batch)


class Omission(NamedTuple):
    """Measurements that are predicted but do not count, and the reason."""

    cells: Selector
    why: str


@dataclass(frozen=True)
class Bench:
    """One testbed: constants by name, their sources, and the measurements used as inputs.

    The key of a constant for one rate is `efficiencies.50`; that for one receiver is
    `window_bytes.NAME`.
    """

    name: str  # the paper's, or the file's
    title: str
    constants: Mapping[str, float] = field(default_factory=dict)
    inputs: tuple[Selector, ...] = ()  # measurements from which constants were read
    takes: tuple[Selector, ...] = ()  # measurements made on these machines
    follows: tuple[Selector, ...] = ()  # measurements that follow from inputs alone
    repeats: tuple[Selector, ...] = ()  # measurements that repeat others
    omissions: tuple[Omission, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)  # of constants
    sources: Mapping[Any, str] = field(default_factory=dict)  # of constants and of `computes`
    costs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by compressor's file
    computes: Mapping[tuple[str, str], Compute] = field(default_factory=dict)  # by model and run
    default_run: str = ""
    backend: str = ""  # in harness.config.backends: how the collectives of benchmark rows run
    fit: tuple[str, ...] = ()
    network: Mapping[str, Any] = field(default_factory=dict)  # documented settings
    rate_mbit: float | None = None  # of links, if a row has none
    ingress_mbit: float | None = None  # if only egress is shaped
    bytes: int | None = None  # of a transfer, if a row has none
    model: str = ""  # of steps, in `harness.fidelity.layers`
    forward: float = 1 / 3  # share of computation

    def __getitem__(self, name: str) -> float:
        return self.constants[name]

    def with_constants(self, values: Mapping[str, float]) -> "Bench":
        return replace(self, constants={**self.constants, **values})

    def has(self, measurement: Measurement) -> bool:
        """Return True if the measurement was made on these machines."""
        return any(selector.takes(measurement) for selector in self.takes)

    def standing(self, measurement: Measurement) -> tuple[Standing, str]:
        """Return whether a prediction of the measurement counts, and the reason if it does not."""

        def is_in(selectors: tuple[Selector, ...]) -> bool:
            return any(selector.takes(measurement) for selector in selectors)

        if is_in(self.inputs):
            return "input", "a constant was read from it"
        if is_in(self.follows):
            return "input", "follows from inputs alone"
        if is_in(self.repeats):
            return "repeat", "repeats another cell"
        for omission in self.omissions:
            if omission.cells.takes(measurement):
                return "left out", omission.why
        return "counts", ""

    def cluster(self, workers: int | None = None, rate_mbit: float | None = None) -> Cluster:
        """Return the paper's cluster, optionally with another size or rate of its cards."""
        return Cluster(
            workers=int(self["workers"]) if workers is None else workers,
            per_node=int(self["per_node"]),
            rate_mbit=self["rate_mbit"] if rate_mbit is None else rate_mbit,
            efficiency=self["efficiency"],
            alpha_s=self["alpha_s"],
        )

    def cost(self, compressor: str) -> Cost:
        """Return the costs of the compressor in this file; empty if none are known."""
        fields = self.costs.get(compressor, {}).items()
        return tuple((name, value) for name, value in fields if name != SOURCE)

    def compute(self, model: str, run: str = "") -> Compute:
        """Return a model's computation in a run of the paper; raise `Unpredictable` if unknown."""
        key = model.replace("-", "").lower()
        for name in (run, self.default_run):
            if (key, name) in self.computes:
                return self.computes[key, name]
        known = ", ".join(sorted({name for name, _ in self.computes}))
        raise Unpredictable(f"no compute time of {model!r} on this testbed, only of {known}")

    def rate_of(self, row: Measurement) -> float:
        """Return every link's Mbit/s; raise `BadMeasurement` if neither row nor bench gives it."""
        found = row.rate_mbit or self.constants.get("rate_mbit") or self.rate_mbit
        if not found:
            raise BadMeasurement(f"{self.name}: give rate_mbit where a row has none, got {row}")
        return found

    def link_of(self, row: Measurement) -> Profile:
        """Return every link's profile; shaped links share the row's round trip and loss equally."""
        rate_mbit, rtt_ms = self.rate_of(row), row.rtt_ms or 0.0
        if self.ingress_mbit is None:
            loss = 1 - (1 - row.loss) ** 0.5  # of one of two links in a row
            return Static(rate_mbit, delay_ms=rtt_ms / CROSSINGS, loss=loss)
        up = Static(rate_mbit, delay_ms=rtt_ms / EGRESSES, loss=row.loss)
        return Asymmetric(up, Static(self.ingress_mbit))

    def settings(self, row: Measurement | None = None) -> dict[str, Any]:
        """Return the documented and fitted settings of a `Simulated` network.

        For a transfer, whose `row.network` is "A to B", the window is that of receiver B.
        """
        found: dict[str, Any] = {"alpha_s": 0.0, "operation_s": 0.0, "update_s": FOREVER_S}
        found |= {"queue_ms": None, "efficiency": Simulated.efficiency, **self.network}
        known, shares = set(Simulated.__dataclass_fields__), {}
        for name, value in self.constants.items():
            if name in known:
                found[name] = value
            elif name.startswith("efficiencies."):
                shares[name.partition(".")[2]] = value
        if row and (own := self.constants.get(f"window_bytes.{row.network.rpartition(' to ')[2]}")):
            found["window_bytes"] = own
        for name in ROUNDED:
            if found.get(name) is not None:
                found[name] = round(found[name])
        return found | ({"efficiencies": shares} if shares else {})


def load_bench(path: Path) -> Bench:
    """Load a testbed; raise `BadMeasurement` if it is malformed or names too many inputs."""
    try:
        told = plain_yaml.from_file(path)
        name = told.get("paper", path.stem)
        constants = dict(told.get("constants") or {})
        fit, inputs = tuple(told.get("fit", ())), _selectors(told["inputs"])
        if "paper" not in told:
            if len(inputs) > MOST_INPUTS:
                must = f"inputs must be at most {MOST_INPUTS} rows, got {len(inputs)}"
                raise BadMeasurement(f"{path}: {must}")
            for constant in {*fit, *constants}:
                if constant.partition(".")[0] not in FITTED:
                    known = ", ".join(FITTED)
                    raise BadMeasurement(
                        f"{path}: what is fitted must be among {known}, got {constant!r}"
                    )
        own = {key: value for key, value in constants.items() if isinstance(value, dict)}
        computes = {
            (each["model"].replace("-", "").lower(), each.get("run", "")): each
            for each in told.get("compute", [])
        }
        costs = (
            plain_yaml.from_file(choices("network/device")[told["device"]])["costs"]
            if "device" in told
            else {}
        )
        return Bench(
            name=name,
            title=told["title"],
            constants=constants | {key: each["value"] for key, each in own.items()},
            inputs=inputs,
            takes=_selectors(told.get("takes", [{"paper": name}])),
            follows=_selectors(told.get("follows", [])),
            repeats=_selectors(told.get("repeats", [])),
            omissions=tuple(
                Omission(selector, each["why"])
                for each in told.get("not_counted", [])
                for selector in _selectors(each["cells"])
            ),
            units={key: each["unit"] for key, each in own.items()},
            sources={
                key: each["source"] for each_of in (own, computes) for key, each in each_of.items()
            },
            costs=costs,
            computes={
                key: Compute(each["forward_s"], each["backward_s"], each.get("batch"))
                for key, each in computes.items()
            },
            fit=fit,
            **{name: told[name] for name in OPTIONAL if name in told},
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise BadMeasurement(f"{path}: not a testbed: {error!r}") from error


def _selectors(rows: list[dict[str, Any]]) -> tuple[Selector, ...]:
    return tuple(map(Selector, rows))


def bench_files() -> list[Path]:
    """Return the testbed files of all studies that have benchmark rows, sorted."""
    folders = [folder for study in studies() if (folder := study.file("testbeds"))]
    return sorted(path for folder in folders for path in folder.glob("*.yaml"))
