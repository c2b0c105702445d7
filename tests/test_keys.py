"""Nothing accepted is ignored: every key changes the run and its id, or is refused, or is listed.

Each key of conf/config.yaml and each field of every part is changed in turn, and a run of a few
steps is made in virtual time with and without the change.
"""

import copy
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.config.scales import composed
from harness.config.settings import NOT_IDENTITY, BadSetting, Settings
from harness.config.typed import leaves
from harness.validation import checked
from harness.virtual.run import simulate
from tests.virtual.runs import prepare

SCENE = (
    "network=simulated", "network/device=v100", "network.noise=0.01", "model=convnet",
    "dataset=digits", "workers=2", "steps=4", "eval_every=2", "bucket_mb=0.01", "model.width=16",
    "emulation.compute=paced", "optimizer.clip_norm=1", "checkpoint_every=null", "report=false",
    "reuse_training=false", "error_feedback=true", "residual_decay=0.9", "compressor=topk",
    "controller.density=0.1",
)  # fmt: skip
SERVER = ("parallel=server", "bucket_mb=null")
PROGRAMS = {
    "data": (),
    "split": ("parallel=split", "activations=dct_mp"),
    "pipeline": ("parallel=pipeline", "activations=dct_mp", "accumulate=2", "workers=4"),
    "server": SERVER,
    "asynchronous": (*SERVER, "parallel.mode=async"),
}
OF_COLLECTIVES = ("network.operation_s", "network.burst_s", "network.packet_s",
                  "network.exchange_noise", "network.segment_s",
                  "network.message_bytes")  # fmt: skip
WITHOUT_EFFECT = {  # keys that a program has no use for, and whose values belong to the machine
    "pipeline": ("emulation.compression",),  # what waits for backward's end is in one order anyway
    "server": OF_COLLECTIVES,
    "asynchronous": OF_COLLECTIVES,
}
STRAGGLER = ("profile=straggler", "profile.nodes.0.rate_mbit=1", "steps=8", "controller=netsense")
ELSEWHERE = (  # keys that have an effect in another scene alone, and what makes it that
    ("optimizer.beta_2", ("optimizer.kind=adam",)),
    ("controller.agree", ("controller=dc2_da2", "network.latency_noise=1")),
    ("controller.agree", (*SERVER, *STRAGGLER)),
    ("network.queue_ms", ("profile=contended",)),
    ("network.flows", ("profile.loss=0.2",)),
    ("network.segment_bytes", ("compressor=dense", "controller.density=1", "profile.delay_ms=5")),
    ("network.update_s", ("profile=noisy", "profile.hold_s=0.01", "profile.deviation=0.5")),
    ("network.repeat", ("emulation.compute=replay", "network.alike=true", "compressor=covap",
                        "controller.density=0.2", "steps=40", "network.repeat=1")),
    ("optimizer.schedule._target_", SERVER),
    ("parallel.mode", SERVER),
    ("target.ends_run", (*SERVER, "eval_every=1", "target.value=0.01")),
    ("watch", SERVER),
)  # fmt: skip
SHOWN = {  # keys that only say where, whether or how something is shown, or bound what may happen
    "results": "where runs are kept",
    "experiment": "the folder that a run is kept in: part of its id, as runs compared are of one",
    "plan": "whether there is a run",
    "draw": "whether there is a drawing in place of a run",
    "rerun": "whether a run is made again",
    "report": "whether a report follows",
    "tracker._target_": "where records are written besides",
    "reuse_training": "whether only times are computed anew, with the same result",
    "method.name": "how the curve is called",
    "scale.name": "which of two workloads was composed: its keys are here",
    "timeouts.start_s": "bounds how long processes may take to begin",
    "timeouts.exchange_s": "bounds how long packets may take",
    "timeouts.run_s": "bounds how long a run may take over packets",
    "timeouts.stop_s": "bounds how long processes may take to report",
    "checkpoint_every": "what is kept to go on with",
    "target.value": "when a target was met is found afterwards, but for ends_run",
    "target.metric": "likewise",
    "device": "where it is computed, with the same result",
    "backend": "what carries packets, of which virtual time has none: refused",
    "emulation.priority": "of ranks over other programs, with the same result",
    "emulation.dilation": "real seconds of an emulated one, of which virtual time has none",
    "model.times.device": "where times were taken",
    "model.times.source": "who tells them",
    "network.device.costs.topk.source": "who tells them",
    "network.fitted_on": "the machine that constants are of",
    "network.in_place_of": "the network that this one is in place of",
    "network.real_seconds": "how compression is charged where it is measured here",
    "network.threads": "how many cores products take here",
    "network.compress_scale": "of compression that is measured, which no two runs have alike",
}  # fmt: skip
OTHER: dict[str, Any] = {
    "network.segment_bytes": None,  # a byte more divides nothing otherwise
    "precision": "bf16", "overlap": "after_backward", "controller.agree": "min", "seed": 1,
    "emulation.compute": "replay", "emulation.compression": "own", "emulation.hooks": "wait",
    "optimizer.kind": "adam", "target.ends_run": True, "workers": 3, "workers_per_node": 2,
    "initial_weights": "nowhere.pt", "resume_from": "nowhere",
    "residual_decay": 0.5, "bucket_mb": 0.1, "network.repeat": 12,
    "network.cores": 1, "network.queue_bytes": 1000, "activations.density": 0,
    "network.bucket_us": 7.0, "network.alike": True, "parallel.mode": "async",
    "optimizer.schedule._target_": "harness.config.schedules.Polynomial",
    "watch": {"_target_": "harness.config.watch.Watch", "every": 1, "gradients": ["0.weight"]},
}  # fmt: skip


def settings(*overrides: str) -> Settings:
    return composed(list(overrides))[0]


def other(key: str, value: Any) -> Any:
    """Another value that the key may have."""
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 if value else 0.5
    return 1 if value is None else f"{value}x"


def changed(base: Settings, key: str, value: Any) -> Settings:
    config = copy.deepcopy(base.config)
    *sections, last = key.split(".")
    section = config
    for name in sections:
        section = section[name]
    section[last] = value
    return Settings(config)


def outcome(folder: Path, asked: Settings) -> str:
    """A digest of what a run leaves; raises BadSetting where it is refused."""
    run = checked(asked)
    prepare(folder, asked)
    simulate(folder, run, lambda: None)
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".csv", ".pt"):
            found.update(file.read_bytes())
    if "failed" in (folder / "status.json").read_text():
        return "failed"
    return found.hexdigest()


def keys(base: Settings, under: str = "") -> Iterator[tuple[str, Any]]:
    for path, value in leaves(base.config):
        key = ".".join(path)
        of_another = key.startswith("network.device.") and ".costs.topk." not in key
        if key.startswith(under) and not key.endswith(("_target_", ".name")) and not of_another:
            if key not in SHOWN and key not in dict(ELSEWHERE):
                yield key, value


def is_ignored(tmp_path: Path, base: Settings, before: str, key: str) -> bool:
    """Whether another value of the key is accepted, and changes not both the run and its id."""
    asked = changed(base, key, other(key, base[key]))
    try:
        after = outcome(tmp_path, asked)
    except BadSetting:
        return False
    return after == before or asked.run_id() == base.run_id()


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_key_of_a_run_changes_it(program, tmp_path):
    base = settings(*SCENE, *PROGRAMS[program])
    before = outcome(tmp_path, base)
    assert outcome(tmp_path, base) == before != "failed"
    found = [key for key, _ in keys(base)]
    assert len(found) > 40
    ignored = [key for key in found if is_ignored(tmp_path, base, before, key)]
    assert sorted(ignored) == sorted(WITHOUT_EFFECT.get(program, ()))


@pytest.mark.parametrize(("key", "beside"), ELSEWHERE)
def test_what_another_scene_needs_changes_it_there(key, beside, tmp_path):
    scene = [each for each in SCENE if key != "controller.agree" or "density" not in each]
    base = settings(*scene, *beside)
    checked(changed(base, key, other(key, base[key])))  # it is not refused
    assert not is_ignored(tmp_path, base, outcome(tmp_path, base), key)


def test_what_only_shows_or_bounds_is_a_key():
    found = {".".join(path) for path, _ in leaves(settings(*SCENE).config)}
    assert set(SHOWN) <= found
    of_another_program = {"typed"}  # the command line of harness.around
    assert set(NOT_IDENTITY) - of_another_program <= {key.partition(".")[0] for key in SHOWN}
