"""The choices of conf/activations, and activations to try them on."""

from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

NAMES = sorted(path.stem for path in Path("conf/activations").glob("*.yaml"))


def build(name: str, **changes: Any) -> Any:
    """The scheme of a yaml, seed 3, with `changes` to its fields."""
    part = OmegaConf.merge(OmegaConf.load(f"conf/activations/{name}.yaml"), changes)
    return instantiate(OmegaConf.create({"seed": 3, "part": part}).part)


def rectified(rows: int, d: int, seed: int) -> Tensor:
    """As behind a rectifier: half of it zero."""
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(seed)).relu()
