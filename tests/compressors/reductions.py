"""The compressors of conf/compressor by name, at work as the laws of compressors have them."""

from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from harness.contract import reductions
from harness.contract.reductions import KINDS as KINDS
from harness.contract.reductions import BucketOutcome as Outcome
from harness.contract.reductions import Shapes as Shapes
from harness.contract.reductions import ThreadReplica as Replica  # noqa: F401
from harness.contract.reductions import bits as bits
from harness.contract.reductions import gradient as gradient
from harness.contract.reductions import shapes_of as shapes_of

CHOICES = Path("conf/compressor")


def variants() -> list[str]:
    """Every yaml of the group, and once more with each of its switches turned: `name key=value`."""
    found = []
    for path in sorted(CHOICES.glob("*.yaml")):
        found.append(path.stem)
        for key, value in OmegaConf.to_container(OmegaConf.load(path), resolve=False).items():
            if isinstance(value, bool):
                found.append(f"{path.stem} {key}={not value}")
    return found


def build(variant: str, **changes: Any) -> Any:
    """The compressor of a variant, seed 3, with `changes` to its fields."""
    name, *switched = variant.split()
    part = OmegaConf.merge(
        OmegaConf.load(CHOICES / f"{name}.yaml"), OmegaConf.from_dotlist(switched), changes
    )
    return instantiate(OmegaConf.create({"seed": 3, "part": part}).part)


def run(
    make: str | reductions.Make, grads: list[Tensor], density: float | list[float]
) -> list[Outcome]:
    """One reduction by as many workers as there are `grads`, each with its own new compressor."""
    return reductions.run(partial(build, make) if isinstance(make, str) else make, grads, density)
