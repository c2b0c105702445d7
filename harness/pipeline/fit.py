"""Settings of cuts and pipelines that do not go together, or with the rest of a run."""

from typing import Any

import torch

from compressors.activations.dense import Dense
from harness.pipeline.operators import before_cuts
from harness.pipeline.stages import cuts_of
from harness.settings import BadSetting, Settings


def check_cuts(settings: Settings, parts: dict[str, Any]) -> None:
    """BadSetting, naming what to change, unless the model can be cut as `parallel` says."""
    parallel, activations = parts["parallel"], parts["activations"]
    name = settings["parallel._target_"].rpartition(".")[2].lower()
    if parallel.stages == 1:
        if not isinstance(activations, Dense):
            raise BadSetting(
                f"activations must be dense with parallel={name}, where the model has no cuts, got "
                f"{type(activations).__name__}; parallel=pipeline and parallel=split have"
            )
        return
    if settings["emulation.compute"] == "replay" and parallel.ranks == 1:
        raise BadSetting(
            f"emulation.compute must be measured or paced with parallel={name}, where nothing "
            "crosses a network, got 'replay'"
        )
    if parts["network"].in_process and settings["workers"] > 1:
        raise BadSetting(
            f"network must have packets with parallel={name} and workers={settings['workers']}: "
            "virtual time knows no cuts but those of one worker's model"
        )
    _check_model(parts)
    if parallel.ranks > 1:
        _check_pipeline(settings, parallel.ranks)


def _check_model(parts: dict[str, Any]) -> None:
    data, parallel = parts["dataset"], parts["parallel"]
    try:
        with torch.device("meta"):
            model = parts["model"].build(data.shape, data.classes)
        if parallel.ranks == 1:
            before_cuts(model, data.shape, parallel)
        else:
            cuts_of(model, data.shape, parallel.stages, parallel.cuts)
    except ValueError as error:
        raise BadSetting(f"parallel: {error}") from error


def _check_pipeline(settings: Settings, stages: int) -> None:
    if settings["workers"] % stages:
        raise BadSetting(
            f"parallel.stages must be a divisor of workers={settings['workers']}, got {stages}"
        )
    off = {"workers_per_node": 1, "optimizer.clip_norm": None}
    for key, value in off.items():
        if (got := settings[key]) != value:
            said = "null" if value is None else value
            raise BadSetting(f"{key} must be {said} with parallel=pipeline, got {got!r}")
