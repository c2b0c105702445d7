"""A testbed: what is told of one paper's machines, and which published cells told it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness.config import plain_yaml
from harness.config.device_costs import SOURCE
from harness.config.search_path import choices
from harness.config.typed import BadSetting
from harness.fidelity.cells import Cell, Selector, Unpredictable

Standing = Literal["counts", "input", "left out", "repeat"]
Cost = tuple[tuple[str, float], ...]  # fields of `harness.config.device_costs.Cost`


class TestbedConstant(NamedTuple):
    """One number of a testbed; `source` says where it is from."""

    value: float
    unit: str
    source: str


class Cluster(NamedTuple):
    """Machines and what joins them: `workers` ranks, `per_node` behind each card of `rate_mbit`."""

    workers: int
    per_node: int
    rate_mbit: float
    efficiency: float
    alpha_s: float
    settings: tuple[tuple[str, Any], ...] = ()  # of the network, beside these; pairs for mappings

    def slower(self, factor: float) -> "Cluster":
        """Copy of the cluster whose links deliver 1 / `factor` of the rate."""
        return self._replace(efficiency=self.efficiency / factor)


class Compute(NamedTuple):
    """Seconds of one worker's iteration without communication; `run` tells apart runs of a model.

    `batch` is None where the paper does not give it.
    """

    forward_s: float
    backward_s: float
    batch: int | None

    def at(self, batch: int | None) -> "Compute":
        """Times for `batch` samples, in proportion to the batch."""
        if batch is None or self.batch is None:
            return self
        ratio = batch / self.batch
        return Compute(self.forward_s * ratio, self.backward_s * ratio, batch)


class Omission(NamedTuple):
    """Cells that are predicted and do not count."""

    cells: Selector
    why: str


@dataclass(frozen=True)
class Testbed:
    """All that predictions of one paper's cells may use."""

    paper: str
    title: str
    constants: dict[str, TestbedConstant]
    costs: dict[str, dict[str, Any]]  # of compression, by file of compressors/
    computes: dict[tuple[str, str], Compute]  # by model and run
    sources: dict[tuple[str, str], str]  # of compute times
    inputs: list[Selector]
    follows: list[Selector]  # what follows from inputs alone
    repeats: list[Selector]  # of other cells
    omissions: list[Omission]
    default_run: str = ""

    def __getitem__(self, name: str) -> float:
        return self.constants[name].value

    def changed(self, values: Mapping[str, float]) -> "Testbed":
        """A copy with other constants; `costs.FILE.FIELD` is one of what compression costs.

        BadSetting for a name that this testbed has no number of.
        """
        constants, costs = dict(self.constants), {k: dict(v) for k, v in self.costs.items()}
        for name, value in values.items():
            _, file, field = (name.split(".") + ["", ""])[:3]
            if name in constants:
                constants[name] = constants[name]._replace(value=value)
            elif field in costs.get(file, {}):
                costs[file][field] = value
            else:
                known = [*constants, *(f"costs.{k}.{key}" for k, v in costs.items() for key in v)]
                raise BadSetting(f"a constant must be one of {', '.join(known)}, got {name!r}")
        return replace(self, constants=constants, costs=costs)

    def cluster(self, workers: int | None = None, rate_mbit: float | None = None) -> Cluster:
        """The testbed's, or the same with other sizes or cards."""
        return Cluster(
            workers=int(self["workers"]) if workers is None else workers,
            per_node=int(self["per_node"]),
            rate_mbit=self["rate_mbit"] if rate_mbit is None else rate_mbit,
            efficiency=self["efficiency"],
            alpha_s=self["alpha_s"],
        )

    def cost(self, compressor: str) -> Cost:
        """Costs of compression by the file of that name; empty where none is given."""
        told = self.costs.get(compressor, {}).items()
        return tuple((name, value) for name, value in told if name != SOURCE)

    def compute(self, model: str, run: str = "") -> Compute:
        """Unpredictable for a model whose compute time is not told."""
        key = model.replace("-", "").lower()
        for name in (run, self.default_run):
            if (key, name) in self.computes:
                return self.computes[key, name]
        known = ", ".join(sorted({name for name, _ in self.computes}))
        raise Unpredictable(f"no compute time of {model!r} on this testbed, only of {known}")

    def standing(self, cell: Cell) -> tuple[Standing, str]:
        """Say if a prediction of `cell` counts, and why not."""
        if any(selector.takes(cell) for selector in self.inputs):
            return "input", "a constant was read from it"
        if any(selector.takes(cell) for selector in self.follows):
            return "input", "follows from inputs alone"
        if any(selector.takes(cell) for selector in self.repeats):
            return "repeat", "repeats another cell"
        for omission in self.omissions:
            if omission.cells.takes(cell):
                return "left out", omission.why
        return "counts", ""


@cache
def load(path: Path) -> Testbed:
    """The one of a study's testbed.yaml."""
    told = plain_yaml.from_file(path)
    return Testbed(
        paper=told["paper"],
        title=told["title"],
        constants={key: TestbedConstant(**each) for key, each in told["constants"].items()},
        costs=_costs(told["device"]) if "device" in told else {},
        computes={
            _key(each): Compute(each["forward_s"], each["backward_s"], each.get("batch"))
            for each in told["compute"]
        },
        sources={_key(each): each["source"] for each in told["compute"]},
        default_run=told.get("default_run", ""),
        inputs=[_selector(each) for each in told["inputs"]],
        follows=[_selector(each) for each in told.get("follows", [])],
        repeats=[_selector(each) for each in told.get("repeats", [])],
        omissions=[
            Omission(_selector(cells), each["why"])
            for each in told["not_counted"]
            for cells in each["cells"]
        ],
    )


def _costs(device: str) -> dict[str, dict[str, Any]]:
    """Costs of compression on a device, a choice of `network/device`."""
    told = plain_yaml.from_file(choices("network/device")[device])
    costs: dict[str, dict[str, Any]] = told["costs"]
    return costs


def _key(told: dict[str, Any]) -> tuple[str, str]:
    """Model and run of a compute time."""
    return told["model"].replace("-", "").lower(), told.get("run", "")


def _selector(told: dict[str, Any]) -> Selector:
    return Selector({key: str(value) for key, value in told.items()})
