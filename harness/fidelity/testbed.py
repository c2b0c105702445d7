"""A testbed: what is told of one paper's machines, and which published cells told it."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from harness.fidelity.cells import Cell, Selector, Unpredictable
from harness.fidelity.fabric import Fabric

Standing = Literal["counts", "input", "left out", "repeat"]
FOLDER = Path(__file__).parent / "testbeds"


class Constant(NamedTuple):
    """One number of a testbed; `source` says where it is from."""

    value: float
    unit: str
    source: str


class Device(NamedTuple):
    """What low-rank compression needs to know of a GPU."""

    flops: float  # per second, of its matrix products
    memory_bytes_per_s: float
    launch_s: float  # from the host, of what a matrix needs
    qr_column_s: float  # of one column of a QR decomposition


class Compute(NamedTuple):
    """Seconds of one worker's iteration without communication; `run` tells apart runs of a model.

    `batch` is None where the paper does not give it.
    """

    forward_s: float
    backward_s: float
    batch: int | None

    def at(self, batch: int | None) -> "Compute":
        """In proportion to the batch."""
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
    constants: dict[str, Constant]
    compress_ns: dict[str, Constant]  # of an element, by method
    computes: dict[tuple[str, str], Compute]  # by model and run
    sources: dict[tuple[str, str], str]  # of compute times
    inputs: list[Selector]
    follows: list[Selector]  # what follows from inputs alone
    repeats: list[Selector]  # of other cells
    omissions: list[Omission]
    default_run: str = ""

    def __getitem__(self, name: str) -> float:
        return self.constants[name].value

    def fabric(self, workers: int | None = None, rate_mbit: float | None = None) -> Fabric:
        """The testbed's network, or the same with other sizes or cards."""
        return Fabric(
            workers=int(self["workers"]) if workers is None else workers,
            per_node=int(self["per_node"]),
            rate_mbit=self["rate_mbit"] if rate_mbit is None else rate_mbit,
            efficiency=self["efficiency"],
            alpha_s=self["alpha_s"],
            gather_factor=self["gather_factor"] if "gather_factor" in self.constants else 1.0,
        )

    @property
    def device(self) -> Device:
        return Device(*(self[name] for name in Device._fields))

    def compute(self, model: str, run: str = "") -> Compute:
        """Unpredictable for a model whose compute time is not told."""
        key = model.replace("-", "").lower()
        for name in (run, self.default_run):
            if (key, name) in self.computes:
                return self.computes[key, name]
        known = ", ".join(sorted({name for name, _ in self.computes}))
        raise Unpredictable(f"no compute time of {model!r} on this testbed, only of {known}")

    def standing(self, cell: Cell) -> tuple[Standing, str]:
        """Whether what is predicted of `cell` counts, and why not."""
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
def load(name: str) -> Testbed:
    """The one of `testbeds/<name>.yaml`."""
    told = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return Testbed(
        paper=told["paper"],
        title=told["title"],
        constants={key: Constant(**each) for key, each in told["constants"].items()},
        compress_ns={
            key: Constant(each["value"], "ns", each["source"])
            for key, each in told.get("compress_ns", {}).items()
        },
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


def _key(told: dict[str, Any]) -> tuple[str, str]:
    """Model and run of a compute time."""
    return told["model"].replace("-", "").lower(), told.get("run", "")


def _selector(told: dict[str, Any]) -> Selector:
    return Selector({key: str(value) for key, value in told.items()})
