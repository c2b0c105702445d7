"""A bench: machines that others measured collectives and steps on, and what is told of them.

A study's folder testbeds/ has a file for each. `inputs` are at most four rows, which alone its
`constants` are fitted to (`python -m harness.calibrate --testbed`); `network` is documented.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from harness.config import plain_yaml
from harness.fidelity.cells import BadCell
from harness.fidelity.rows import Measurement, RowSelector
from harness.studies import studies
from harness.virtual.network import Simulated
from profiles.asymmetric import Asymmetric
from profiles.base import Profile
from profiles.static import Static

MOST_INPUTS = 4
CROSSINGS, EGRESSES = 4, 2  # of links, and of those that packets leave by, in a round trip
OPTIONAL = ("rate_mbit", "ingress_mbit", "bytes", "model", "forward")
FOREVER_S = 3600.0  # between looks at a network that does not change
FITTED = {  # what may be fitted, between what bounds; the first is that of a rate
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


@dataclass(frozen=True)
class Bench:
    """Constants by name; one of a rate is `efficiencies.50`, one of a receiver `window_bytes.NAME`.

    None fitted yet: `constants` is {}. `ingress_mbit` is of testbeds that shape what leaves alone.
    """

    name: str
    title: str
    backend: str  # gloo | nccl: by which algorithms collectives run
    takes: tuple[RowSelector, ...]
    inputs: tuple[RowSelector, ...]
    fit: tuple[str, ...]
    network: Mapping[str, Any]
    constants: Mapping[str, float]
    rate_mbit: float | None = None  # of links, where a row has none
    ingress_mbit: float | None = None  # of what comes to a machine; None: as of what leaves it
    bytes: int | None = None  # of a transfer, where a row has none
    model: str = ""  # of steps, in `harness.fidelity.layers`
    forward: float = 1 / 3  # share of computation

    def __getitem__(self, name: str) -> float:
        return float(self.constants.get(name, 0.0))

    def with_constants(self, values: Mapping[str, float]) -> "Bench":
        return replace(self, constants={**self.constants, **values})

    def is_of(self, row: Measurement) -> bool:
        return any(each.takes(row) for each in self.takes)

    def is_input(self, row: Measurement) -> bool:
        return any(each.takes(row) for each in self.inputs)

    def rate_of(self, row: Measurement) -> float:
        """Mbit/s of every link; BadCell where neither row nor testbed tells it."""
        found = row.rate_mbit or self.constants.get("rate_mbit") or self.rate_mbit
        if not found:
            raise BadCell(f"{self.name}: rate_mbit must be told where a row has none, got {row}")
        return found

    def link_of(self, row: Measurement) -> Profile:
        """Every machine's link in a row: a round trip is divided over what is shaped of it."""
        rate_mbit, rtt_ms = self.rate_of(row), row.rtt_ms or 0.0
        if self.ingress_mbit is None:
            return Static(rate_mbit, delay_ms=rtt_ms / CROSSINGS, loss=_of_half(row.loss))
        up = Static(rate_mbit, delay_ms=rtt_ms / EGRESSES, loss=row.loss)
        return Asymmetric(up, Static(self.ingress_mbit))

    def settings_of(self, row: Measurement) -> dict[str, Any]:
        """`settings` with what is known of the machine that receives, as "A to B" names it."""
        receiver = row.network.rpartition(" to ")[2]
        window = self.constants.get(f"window_bytes.{receiver}")
        return self.settings() | ({"window_bytes": round(window)} if window else {})

    def settings(self) -> dict[str, Any]:
        """Return the settings of a `Simulated`: those documented and those fitted."""
        known = set(Simulated.__dataclass_fields__)
        told = {"alpha_s": 0.0, "operation_s": 0.0, "update_s": FOREVER_S, "queue_ms": None}
        told["efficiency"] = Simulated.efficiency
        told |= dict(self.network)
        told |= {name: value for name, value in self.constants.items() if name in known}
        for name in ("window_bytes", "initial_window_bytes"):
            if (told_bytes := told.get(name)) is not None:
                told[name] = round(told_bytes)
        shares = {
            name.partition(".")[2]: value
            for name, value in self.constants.items()
            if name.startswith("efficiencies.")
        }
        return told | ({"efficiencies": shares} if shares else {})


def _of_half(loss: float) -> float:
    """Loss of either of two links in a row that lose so much together."""
    return 1 - (1 - loss) ** 0.5


def load_bench(path: Path) -> Bench:
    """BadCell for what is no testbed of rows, or names more than four inputs."""
    try:
        told = plain_yaml.from_file(path)
        inputs = tuple(RowSelector.of(each) for each in told["inputs"])
        fit, constants = tuple(told["fit"]), dict(told.get("constants") or {})
        if len(inputs) > MOST_INPUTS:
            raise BadCell(f"{path}: inputs must be at most {MOST_INPUTS} rows, got {len(inputs)}")
        for name in {*fit, *constants}:
            if name.partition(".")[0] not in FITTED:
                known = ", ".join(FITTED)
                raise BadCell(f"{path}: what is fitted must be among {known}, got {name!r}")
        return Bench(
            name=path.stem,
            title=told["title"],
            backend=told["backend"],
            takes=tuple(RowSelector.of(each) for each in told["takes"]),
            inputs=inputs,
            fit=fit,
            network=told["network"],
            constants=constants,
            **{name: told[name] for name in OPTIONAL if name in told},
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise BadCell(f"{path}: not a testbed of rows: {error!r}") from error


def benches() -> list[Bench]:
    """Load the benches of all studies."""
    return [load_bench(path) for path in bench_files()]


def bench_files() -> list[Path]:
    folders = [folder for study in studies() if (folder := study.file("testbeds"))]
    return sorted(path for folder in folders for path in folder.glob("*.yaml"))
