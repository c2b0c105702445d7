"""The choices of the group `activations`, and activations to try them on."""

from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from harness.config.search_path import choices
from harness.contract.activations import rectified as rectified

NAMES = choices("activations")


def build(name: str, **changes: Any) -> Any:
    """The scheme of a yaml, seed 3, with `changes` to its fields."""
    part = OmegaConf.merge(OmegaConf.load(NAMES[name]), changes)
    return instantiate(OmegaConf.create({"seed": 3, "part": part}).part)
