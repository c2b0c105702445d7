"""The choices of the group `activations`, and activations to try them on."""

from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from harness.config.search_path import choices

NAMES = choices("activations")


def build(name: str, **changes: Any) -> Any:
    """The scheme of a yaml, seed 3, with `changes` to its fields."""
    part = OmegaConf.merge(OmegaConf.load(NAMES[name]), changes)
    return instantiate(OmegaConf.create({"seed": 3, "part": part}).part)


def rectified(rows: int, d: int, seed: int) -> Tensor:
    """As behind a rectifier: half of it zero."""
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(seed)).relu()
