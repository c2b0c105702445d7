"""Nothing accepted with `parallel=server` is ignored: each key changes the run, or is refused.

In virtual time, where a run that is not changed is the same to the last digit.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from harness.config.settings import BadSetting
from harness.config.typed import leaves
from tests.virtual.runs import DETERMINED, settings_of, simulated, weights

TINY = ("parallel=server", "model=mlp", "model.hidden=[8]", "steps=3", "workers=2", "eval_every=3")
TINY += ("method=topk", "controller.density=0.1", *DETERMINED)
ASYNC = ("parallel.mode=async", "optimizer.momentum=0")
DCT = ("method=dct_ps", "steps=4", "parallel.drain_period=2")
ENDS = ("steps=4", "eval_every=1", "target.ends_run=true", "target.value=0.999")
WATCH = "{_target_:harness.config.watch.Watch,every:1,gradients:[1.weight]}"
FALLING = "{_target_:harness.config.schedules.Polynomial}"
STRAGGLER = ("profile=straggler", "profile.nodes.0.rate_mbit=1", "steps=8", "controller=netsense")
STRAGGLER += ("~controller.density",)
CHANGED = {  # of what another value, beside what
    "workers": ("workers=3",),
    "steps": ("steps=4",),
    "epochs": ("epochs=1", "steps=null"),
    "workers_per_node": ("workers_per_node=2",),
    "batch_size": ("batch_size=8",),
    "accumulate": ("accumulate=2",),
    "precision": ("precision=bf16",),
    "seed": ("seed=1",),
    "network_seed": (
        "network_seed=1", ("profile=noisy", "profile.hold_s=0.01", "profile.deviation=0.5"),
    ),
    "target.metric": ("target.metric=loss", (*ENDS, "target.value=0.01")),
    "target.value": ("target.value=0.01", ENDS),
    "target.ends_run": ("target.ends_run=true", ("eval_every=1", "target.value=0.01")),
    "device": ("device=cuda",),
    "eval_every": ("eval_every=2",),
    "checkpoint_every": ("checkpoint_every=null",),
    "initial_weights": ("initial_weights=/nowhere.pt",),
    "resume_from": ("resume_from=/nowhere",),
    "watch": (f"watch={WATCH}",),
    "optimizer.kind": ("optimizer.kind=adam",),
    "optimizer.lr": ("optimizer.lr=0.1",),
    "optimizer.momentum": ("optimizer.momentum=0.5",),
    "optimizer.beta_2": ("optimizer.beta_2=0.5", ("optimizer.kind=adam",)),
    "optimizer.weight_decay": ("optimizer.weight_decay=0.1",),
    "optimizer.nesterov": ("optimizer.nesterov=true",),
    "optimizer.clip_norm": ("optimizer.clip_norm=0.01",),
    "optimizer.schedule": (f"optimizer.schedule={FALLING}",),
    "error_feedback": ("error_feedback=false",),
    "residual_decay": ("residual_decay=0.5",),
    "overlap": ("overlap=after_backward",),
    "bucket_mb": ("bucket_mb=0",),
    "fusion": ("fusion=compressed",),
    "controller.agree": ("controller.agree=min", STRAGGLER),
    "controller": ("controller.density=0.2",),
    "emulation.compute": ("emulation.compute=measured",),
    "emulation.compression": ("emulation.compression=own",),
    "emulation.hooks": ("emulation.hooks=wait",),
    "emulation.interference": ("emulation.interference=2",),
    "network.alpha_s": ("network.alpha_s=0.01",),
    "network.wake_s": ("network.wake_s=0.01",),
    "network.efficiency": ("network.efficiency=0.5",),
    "network.noise": ("network.noise=0.1",),
    "network.latency_noise": ("network.latency_noise=0.1",),
    "network.compress_scale": ("network.compress_scale=1000",),
    "network.device": ("network/device=v100",),
    "network.cores": ("network.cores=1",),
    "network.update_s": (
        "network.update_s=0.05", ("profile=noisy", "profile.hold_s=0.01", "profile.deviation=0.5"),
    ),
    "network.sample_s": ("network.sample_s=0.1",),
    "network.timeline_steps": ("network.timeline_steps=1",),
    "network.alike": ("network.alike=true",),
    "parallel.mode": ("parallel.mode=async",),
    "parallel.threads": ("parallel.threads=2", ASYNC),
    "parallel.pull_every": ("parallel.pull_every=2",),
    "parallel.consistent_pull": ("parallel.consistent_pull=true",),
    "parallel.staleness_bound": (
        "parallel.staleness_bound=0", (*ASYNC, "profile=straggler", "profile.nodes.0.rate_mbit=1"),
    ),
    "parallel.drain": ("parallel.drain=flush", DCT),
    "parallel.drain_period": ("parallel.drain_period=1", DCT),
    "parallel.restarts": ("parallel.restarts=1", ASYNC),
    "parallel.session_timeout_s": ("parallel.session_timeout_s=9",),
    "activations": ("activations=dct_mp",),
    "compressor": ("compressor=randomk", ("controller.agree=min",)),
    "profile": ("profile.rate_mbit=10",),
    "model": ("model.hidden=[9]",),
    "dataset": ("dataset=synthetic",),
}  # fmt: skip
ELSEWHERE = {  # who reads it, or why there is nothing that it could change
    "experiment": "a folder's name", "results": "a folder's name", "method": "a label",
    "scale": "a label", "plan": "the command", "rerun": "the command", "report": "the command",
    "reuse_training": "a server trains anew",
    "timeouts": "bounds of real seconds", "emulation.dilation": "real seconds",
    "network.real_seconds": "scales constants by the dilation", "network.threads": "this process",
    "network.operation_s": "of a collective", "network.burst_s": "of a collective",
    "network.packet_s": "of a collective", "network.exchange_noise": "of collectives",
    "network.repeat": "of one who stands for all",
    "network.queue_ms": "of competing flows", "network.queue_bytes": "of competing flows",
    "network.fitted_on": "a label", "network.in_place_of": "a label",
    "network._target_": "the network", "parallel._target_": "the server",
}  # fmt: skip
LEFT = ("steps.csv", "pushes.csv", "evaluations.csv", "links.csv", "timeline.csv", "watched.csv")


@cache
def outcome(*overrides: str) -> tuple:
    """All that a run leaves."""
    with TemporaryDirectory() as folder:
        run = simulated(Path(folder) / "run", *TINY, *overrides)
        files = [(run / name).read_text() if (run / name).exists() else None for name in LEFT]
        model = run / "checkpoint" / "model.pt"
        trained = [w.numpy().tobytes() for w in weights(run).values()] if model.exists() else None
        return (*files, str(trained))


@pytest.mark.parametrize("key", CHANGED)
def test_another_value_changes_the_run_or_is_refused(key):
    change, beside = CHANGED[key] if isinstance(CHANGED[key][-1], tuple) else (CHANGED[key], ())
    changes = change if isinstance(change, tuple) else (change,)
    before = outcome(*beside)
    try:
        settings_of(*TINY, *beside, *changes)
    except BadSetting as error:
        assert "\n" not in str(error)
        return
    assert outcome(*beside, *changes) != before


def test_every_key_is_tried_or_is_of_another_place():
    known = {*CHANGED, *ELSEWHERE}
    for keys, _ in leaves(settings_of(*TINY).config):
        assert any(".".join(keys[:some]) in known for some in range(1, len(keys) + 1)), keys
