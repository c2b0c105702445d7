"""Weights published by torchvision, as initial weights of all layers but the last."""

from pathlib import Path

import torch
from torch import nn

from harness.workloads.data.base import data_folder, not_found


def check(name: str, weights: str | None) -> None:
    """Raise FileNotFoundError unless model `name`'s `weights`, if any, exist."""
    path = _path(weights)
    if path is not None and not path.is_file():
        layout = f"{path.name} as torchvision publishes it, or model.weights=null for random ones"
        raise not_found(f"weights of {name}", path.parent, f"no {path.name}", layout)


def begin(network: nn.Module, name: str, weights: str | None) -> nn.Module:
    """Load these weights into `network`. ValueError names a misfit. On meta nothing is loaded."""
    path, own = _path(weights), network.state_dict()
    if path is None or next(network.parameters()).is_meta:
        return network
    check(name, weights)
    saved = torch.load(path, weights_only=True, map_location="cpu")
    *_, last = (prefix for prefix, layer in network.named_modules() if isinstance(layer, nn.Linear))
    for key, value in own.items():
        if key.rpartition(".")[0] == last or (key not in saved and not value.dim()):
            continue  # older files lack the counters of batch norm
        if key not in saved or saved[key].shape != value.shape:
            found = f"{tuple(saved[key].shape)}" if key in saved else "nothing"
            raise ValueError(
                f"model.weights must fit {name} in all layers but {last}: {key} is "
                f"{tuple(value.shape)}, and {path} has {found} for it"
            )
        own[key] = saved[key]
    network.load_state_dict(own)
    return network


def _path(weights: str | None) -> Path | None:
    """Return the path of the weights, in the data folder unless absolute."""
    return None if weights is None else data_folder(None) / weights
