"""Settings of a parameter server that do not go with the rest of a run."""

from typing import Any

from compressors.dct_dp import DCTDP
from compressors.dense import Dense
from compressors.topk import TopK
from controllers.fixed import Fixed
from harness.parameter_server.layout import Server
from harness.settings import BadSetting, Settings

PUSHED = (Dense, DCTDP, TopK)  # whose one message says all: the others need an answer, or a mean


def check_server(settings: Settings, parts: dict[str, Any]) -> None:
    """BadSetting, naming what to change, unless all goes with `parallel=server`, if it is that."""
    if not isinstance(parts["parallel"], Server):
        return
    network, compute = parts["network"], settings["emulation.compute"]
    if network.in_process or network.machines_of_run() > 1:
        raise BadSetting("network must have packets, on one machine, with parallel=server")
    if compute == "replay":
        raise BadSetting("emulation.compute must be measured or paced with parallel=server, got "
                         "'replay': weights are what is exchanged")  # fmt: skip
    if not isinstance(parts["compressor"], PUSHED):
        allowed = ", ".join(kind.__name__ for kind in PUSHED)
        kind = type(parts["compressor"]).__name__
        raise BadSetting(f"compressor must be of {allowed} with parallel=server, got {kind}")
    if not isinstance(parts["controller"], Fixed):
        kind = type(parts["controller"]).__name__
        raise BadSetting(f"controller must be fixed with parallel=server, got {kind}")
    if parts["dataset"].metric != "accuracy":
        raise BadSetting("dataset must not be text with parallel=server, whose threads share it")
    _check_values(settings, parts)


def _check_values(settings: Settings, parts: dict[str, Any]) -> None:
    for key, value in {"workers_per_node": 1, "residual_decay": 1}.items():
        if (got := settings[key]) != value:
            raise BadSetting(f"{key} must be {value} with parallel=server, got {got!r}")
    if settings["device"] == "cuda":
        raise BadSetting("device must be cpu or auto with parallel=server, got 'cuda'")
    if parts["parallel"].drain_period is not None and not settings["error_feedback"]:
        raise BadSetting("parallel.drain_period must be null without error_feedback")
