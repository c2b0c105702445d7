"""Settings that do not go together, and what they name that is not there."""

import json
from operator import attrgetter
from pathlib import Path

import torch
from torch import Size

from compressors.base import Compressor
from controllers.base import Controller
from controllers.fixed import Fixed
from harness.config.parallel import Data
from harness.config.run import Run
from harness.config.server import Server
from harness.config.settings import Settings
from harness.config.typed import BadSetting, of_part, require
from harness.emulation.errors import NetworkError
from harness.emulation.shaping import Shaping
from harness.engine.parameter_server.constraints import check_server
from harness.engine.pipeline.constraints import check_cuts
from harness.engine.training import resume
from harness.virtual.network import Simulated
from harness.workloads.models.tried import misfit
from profiles.base import WAYS


def checked(settings: Settings) -> Run:
    """Build the run and check that it can work; BadSetting at the first value that cannot."""
    run = settings.run()
    check_fit(run)
    return run


def check_fit(run: Run) -> None:
    """Raise BadSetting for parts that do not go together, and data that is not there."""
    compressor, controller = run.compressor(), run.controller()
    check_nodes(run)
    _check_network(run)
    _check_model(run)
    check_server(run, compressor)
    check_cuts(run)
    _check_watch(run)
    _check_replaced(run, compressor)
    _check_fusion(run, compressor)
    _check_level(compressor, controller)
    _check_agreement(run, compressor, controller)
    _check_devices(run)
    _check_resumed(run)
    _check_replay(run)
    _check_lanes(run)
    if not run.emulation.is_replay:
        with of_part("dataset", FileNotFoundError, ValueError):
            run.find_files()
            getattr(run.dataset, "check_content", lambda: None)()


def check_nodes(run: Run) -> None:
    """BadSetting when the profile has no link for one of the run's nodes."""
    with of_part("profile", ValueError):
        for node in range(run.nodes):
            for way in WAYS:
                run.profile.link(0.0, node, way)


def _check_network(run: Run) -> None:
    network, dilation, compute = run.network, run.emulation.dilation, run.emulation.compute
    with of_part("network", ValueError, NetworkError, OSError):
        network.check(run.nodes, run.profile, dilation)
        if isinstance(network, Shaping):
            network.check_followed(run.nodes, run.profile, dilation)
    alike = isinstance(network, Simulated) and network.alike
    own = f"false with emulation.compute={compute}, whose workers have gradients of their own"
    require(run.emulation.is_replay or not alike, "network.alike", alike, own)


def _check_model(run: Run) -> None:
    """Refuse a model that cannot be timed, or trained on the data set, as it is asked."""
    model, data = run.model, run.dataset
    untimed = f"measured for model {model.name}, which has no published times; or give model.times"
    timed = run.emulation.is_measured or run.times is not None
    require(timed, "emulation.compute", run.emulation.compute, untimed)
    metric, known = run.target.metric, (data.metric, "loss")
    told = f"{' or '.join(known)}, as data set {data.name} has it, or null for the first"
    require(metric is None or metric in known, "target.metric", metric, told)
    run.target.check_against(metric or data.metric)
    weights = run.initial_weights
    there = weights is None or Path(weights).is_file()
    require(there, "initial_weights", weights, "a checkpoint file")
    key = json.dumps([run.deciding[part] for part in ("model", "dataset")], sort_keys=True)
    if key not in _tried:
        _tried[key] = misfit(model, data)
    if why := _tried[key]:
        raise BadSetting(f"model {model.name} does not go with data set {data.name}: {why}")


_tried: dict[str, str] = {}  # what was said of each pair: runs of a sweep have the same


def _check_watch(run: Run) -> None:
    """Refuse a watch of what the model has not, or where nothing is trained."""
    if run.watch is None:
        return
    told = type(run.watch)
    replay = "null with emulation.compute=replay"
    require(not run.emulation.is_replay, "watch", told, replay)
    with of_part("watch", ValueError):
        run.watch.check([name for name, _ in run.shapes().named_parameters()])


def _check_replaced(run: Run, compressor: Compressor) -> None:
    """Refuse settings whose work the compressor does itself."""
    for key in compressor.replaces:
        value = attrgetter(key)(run)
        off = "false" if value is True else 0
        does = f"{off} with {type(compressor).__name__}, which does its work"
        require(not value, key, value, does)


def _check_fusion(run: Run, compressor: Compressor) -> None:
    """Refuse to fuse what a compressor sends where its size is not known beforehand."""
    kind, plain = type(compressor).__name__, run.fusion == "uncompressed"
    untold = f"uncompressed with {kind} that does not say what it makes of a tensor"
    require(plain or compressor.elements(Size([1]), 0) is not None, "fusion", run.fusion, untold)
    fixed = not compressor.has_level
    chosen = f"uncompressed with {kind} of a rank that follows from a density"
    require(plain or fixed, "fusion", run.fusion, chosen)


def _check_level(compressor: Compressor, controller: Controller) -> None:
    """Refuse a controller or density below 1 with a compressor that ignores density."""
    if compressor.has_level:
        return
    same = f"with {type(compressor).__name__}, which sends as many bytes at any density"
    require(isinstance(controller, Fixed), "controller", type(controller), f"fixed {same}")
    density = controller.density(None)
    require(density == 1, "controller.density", density, f"1 {same}")


def _check_agreement(run: Run, compressor: Compressor, controller: Controller) -> None:
    """Refuse densities that differ with a compressor that needs one on all workers."""
    apart = run.agree == "local" and not controller.same_everywhere
    alone = isinstance(run.parallel, Server) and run.parallel.mode == "async"  # each by itself
    kind = type(compressor).__name__
    told = f"min or mean for a compressor that needs one density on all workers ({kind})"
    good = alone or not (compressor.uniform_density and apart)
    require(good, "controller.agree", run.agree, told)


def _check_devices(run: Run) -> None:
    workers, gpus, here = _workers_here(run), _gpus(run), torch.cuda.device_count()
    few = f"cpu or auto for {workers} workers on {here} GPUs (they need {gpus})"
    require(run.device != "cuda" or here >= gpus, "device", run.device, few)


def _workers_here(run: Run) -> int:
    return run.workers // run.network.machines_of_run()


def _gpus(run: Run) -> int:
    return run.network.gpus(_workers_here(run))


def _check_replay(run: Run) -> None:
    """Refuse settings of training where nothing is computed."""
    trains_nothing = "with emulation.compute=replay, which trains nothing"
    if run.emulation.is_replay:
        single = run.precision == "float32"
        require(single, "precision", run.precision, f"float32 {trains_nothing}")
        begins = run.resume_from is None
        require(begins, "resume_from", run.resume_from, f"null {trains_nothing}")


def _check_lanes(run: Run) -> None:
    """Refuse lanes and charges of a device that is not emulated."""
    network, where, compute = run.network, run.emulation.compression, run.emulation.compute
    real = not network.in_process and run.emulation.is_measured
    untold = (
        f"own or null over packets with emulation.compute={compute}, where nobody says when the "
        "device is free"
    )
    require(not real or where != "device", "emulation.compression", where, untold)
    device = network.device or {}
    charges = network.in_process or (not real and isinstance(run.parallel, Data))
    uncharged = (
        "measured over packets, where compression takes what it takes here, but for parallel=data "
        "with emulation.compute=paced or replay"
    )
    free = charges or not device.get("costs")
    require(free, "network/device", device.get("name", "costs of its own"), uncharged)
    value = run.emulation.interference
    apart = (
        "1 where compression does not take turns with backward (emulation.compression=device, of "
        "an emulated device)"
    )
    together = not real and where != "own"
    require(value == 1 or together, "emulation.interference", value, apart)


def _check_resumed(run: Run) -> None:
    """Check that a run can go on from its checkpoint."""
    try:
        begin = resume.resumed(run.resume_from)
        if begin is not None:
            resume.check(run, begin, _workers_here(run))
    except (ValueError, OSError) as error:
        raise BadSetting(f"resume_from {error}") from error
    if begin is not None and begin.manifest.device != (here := run.device_type(_gpus(run))):
        raise BadSetting(
            f"resume_from was trained on {begin.manifest.device}, and here device is {here}"
        )
