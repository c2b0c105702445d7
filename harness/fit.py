"""Settings that do not go together, and what they name that is not there."""

from pathlib import Path
from typing import Any

import torch

from controllers.fixed import Fixed
from harness.network.errors import NetworkError
from harness.nodes import count
from harness.parameter_server.fit import check_server
from harness.pipeline.fit import check_cuts
from harness.settings import BadSetting, Settings
from harness.training import resume
from profiles.base import WAYS, Profile


def check_nodes(settings: Settings, profile: Profile) -> int:
    """How many nodes there are; BadSetting when the profile has no link for one of them."""
    nodes = count(settings)
    for node in range(nodes):
        for way in WAYS:
            try:
                profile.link(0.0, node, way)
            except ValueError as error:
                raise BadSetting(f"profile: {error}") from error
    return nodes


def check_fit(settings: Settings, parts: dict[str, Any]) -> None:
    """What single values cannot show: parts that do not go together, data that is not there."""
    nodes = check_nodes(settings, parts["profile"])
    try:
        parts["network"].check(nodes, parts["profile"], settings["emulation.dilation"])
    except (ValueError, NetworkError, OSError) as error:
        raise BadSetting(f"network: {error}") from error
    compute = settings["emulation.compute"]
    if compute != "measured" and parts["model"].times is None:
        raise BadSetting(
            f"emulation.compute must be measured for model {parts['model'].name}, which has no "
            f"published compute times, got {compute!r}; or give model.times"
        )
    metric, known = settings["target.metric"], (parts["dataset"].metric, "loss")
    if metric is not None and metric not in known:
        raise BadSetting(
            f"target.metric must be {' or '.join(known)}, as data set {parts['dataset'].name} has "
            f"it, or null for the first, got {metric!r}"
        )
    check_cuts(settings, parts)
    _check_watch(settings, parts)
    check_server(settings, parts)
    _check_replaced(settings, parts["compressor"])
    _check_level(settings, parts["compressor"], parts["controller"])
    same = getattr(parts["controller"], "same_everywhere", False)
    if parts["compressor"].uniform_density and settings["controller.agree"] == "local" and not same:
        raise BadSetting(
            "controller.agree must be min or mean for a compressor that needs one density on all "
            f"workers ({settings['compressor']['_target_']}), got 'local'"
        )
    workers_here = settings["workers"] // parts["network"].machines_of_run()
    gpus = parts["network"].gpus(workers_here)
    if settings["device"] == "cuda" and torch.cuda.device_count() < gpus:
        raise BadSetting(
            f"device must be cpu or auto for {workers_here} workers on "
            f"{torch.cuda.device_count()} GPUs (they need {gpus}), got 'cuda'"
        )
    weights = settings["initial_weights"]
    if weights is not None and not Path(weights).is_file():
        raise BadSetting(f"initial_weights must be a checkpoint file, got {weights!r}")
    _check_resumed(settings, workers_here, gpus)
    _check_replay(settings)
    if getattr(parts["network"], "alike", False) and compute != "replay":
        raise BadSetting(
            f"network.alike must be false with emulation.compute={compute}, whose workers have "
            "gradients of their own, got True"
        )
    if compute != "replay":
        try:
            parts["dataset"].check()
            getattr(parts["model"], "check_files", lambda: None)()
        except FileNotFoundError as error:
            raise BadSetting(f"dataset: {error}") from error


def _check_watch(settings: Settings, parts: dict[str, Any]) -> None:
    """Where a watch sees one worker's whole model in training."""
    if settings["watch"] is None:
        return
    shared = parts["network"].in_process and settings["workers"] > 1
    for bad, where in (
        (parts["parallel"].ranks > 1, "parallel=pipeline"),
        (settings["emulation.compute"] == "replay", "emulation.compute=replay"),
        (shared, f"workers={settings['workers']} in virtual time, where they share a model"),
    ):
        if bad:
            raise BadSetting(f"watch must be null with {where}")
    watch, data = settings.build("watch"), parts["dataset"]
    with torch.device("meta"):
        model = parts["model"].build(data.shape, data.classes)
    try:
        watch.check([name for name, _ in model.named_parameters()])
    except ValueError as error:
        raise BadSetting(f"watch: {error}") from error


def _check_replaced(settings: Settings, compressor: Any) -> None:
    """What a compressor does itself must not be done once more around it."""
    for key in getattr(compressor, "replaces", ()):
        if value := settings[key]:
            kind, off = type(compressor).__name__, "false" if value is True else 0
            raise BadSetting(f"{key} must be {off} with {kind}, which does its work, got {value!r}")


def _check_level(settings: Settings, compressor: Any, controller: Any) -> None:
    """A controller that chooses needs a compressor on which its choices have an effect."""
    if not getattr(compressor, "has_level", True) and not isinstance(controller, Fixed):
        raise BadSetting(
            f"controller must be fixed with {type(compressor).__name__}, which sends as many bytes "
            f"at any density, got {type(controller).__name__}"
        )


def _check_replay(settings: Settings) -> None:
    """Where nothing is computed."""
    if settings["emulation.compute"] == "replay":
        for key, off in (("precision", "float32"), ("resume_from", None)):
            if (value := settings[key]) != off:
                said = "null" if off is None else off
                raise BadSetting(
                    f"{key} must be {said} with emulation.compute=replay, which trains nothing, "
                    f"got {value!r}"
                )


def _check_resumed(settings: Settings, workers_here: int, gpus: int) -> None:
    """That a run can go on from where it is to."""
    path = settings["resume_from"]
    if path is not None and not isinstance(path, str):
        raise BadSetting(f"resume_from must be a path or null, got {path!r}")
    try:
        begin = resume.resumed(path)
        if begin is not None:
            resume.check(settings.config, begin, workers_here)
    except (ValueError, OSError) as error:
        raise BadSetting(f"resume_from {error}") from error
    if begin is not None and begin.manifest.device != (here := device_type(settings, gpus)):
        raise BadSetting(
            f"resume_from was trained on {begin.manifest.device}, and here device is {here}"
        )


def device_type(settings: Settings, needed: int) -> str:
    """`cuda`, where so many GPUs are needed and this machine has them; or `cpu`."""
    wanted, gpus = settings["device"], torch.cuda.device_count()
    return "cpu" if wanted == "cpu" or (wanted == "auto" and gpus < needed) else "cuda"
