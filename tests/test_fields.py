"""No field of a choice is ignored: another value changes what the part does, or is refused.

Beside `tests.test_keys`, which changes the keys of one run: here every compressor reduces some
gradients, every controller sees some exchanges, every scheme sends activations and every profile is
looked at, each with one of its fields changed. A run does what its parts do, built of these fields.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from harness.engine.exchange.feedback import NoFeedback, Residual
from profiles.base import WAYS
from tests.activations.schemes import rectified
from tests.activations.test_contract import there_and_back
from tests.compressors.reductions import Replica, gradient
from tests.compressors.threads import together
from tests.controllers.observations import seen

STEPS, EXCHANGES = 12, 150
BUCKETS: list[dict[str, tuple[int, ...]]]
BUCKETS = [{"m.weight": (120, 100), "v": (90,)}, {"t": (16, 8, 3, 3)}, {"w": (300,)}, {"x": (200,)}]
STATIC = {"_target_": "profiles.static.Static", "rate_mbit": 100.0}
WAVE = {"_target_": "profiles.square.Square", "high_mbit": 80, "low_mbit": 10, "period_s": 5}
UNEVEN = {"_target_": "profiles.by_node.ByNode", "default": WAVE,
          "nodes": {3: {**WAVE, "high_mbit": 1, "low_mbit": 0.5}}}  # fmt: skip
RUN = {"seed": 3, "network_seed": 3, "profile": WAVE, "workers": 4, "workers_per_node": 1}

DELAYED = "degrading fluctuating mahimahi markov ornstein_uhlenbeck square static steps"

# What else a choice has to be for its fields to matter.
SCENES: dict[str, dict[str, Any]] = {
    "compressor.mstopk": {"rounds": 3},
    "compressor.netsense": {"tr_q": 0.2},
    "compressor.randomk.index_dtype": {"shared": False},
    "compressor.covap.ascend_range": {"ascend_steps": 1},
    "compressor.sampled_topk.rounds": {"low": 0.99, "high": 1.01},
    "controller.gravac.omega": {"d_max": 0.5},
    "controller.netsense.startup_steps": {"startup_rtt": 50.0},
    "controller.oracle.margin": {"eps": None},
    "controller.oracle.workers": {"profile": {**WAVE, "delay_ms": 5.0}},
    "controller.oracle.workers_per_node": {"profile": UNEVEN},
    "compressor.lgreco": {"period": 1, "bins": 1000, "alpha": 1.05},
    "controller.pace_horizon.d_min": {"horizons": [1]},
    "controller.pace_horizon.spacing": {"horizons": [1]},
    "controller.oracle_horizon.workers": {"profile": {**WAVE, "delay_ms": 5.0}},
    "controller.oracle_horizon.workers_per_node": {"profile": UNEVEN},
    "profile.contended.seed": {"spread": 0.5},
    **{f"profile.{name}": {"delay_ms": 2.0} for name in DELAYED.split()},
    **{f"profile.{name}": {"of": STATIC} for name in ("contended", "lossy", "noisy")},
    "profile.scaled": {"of": STATIC},
}
# Other values, where half of a number, or the other of two, is none.
OTHERS: dict[str, Any] = {
    "index_dtype": "int64", "compressor.bf16.dtype": "float16", "compressor.fp16.dtype": "bfloat16",
    "compressor.carried_topk.low": 0.99, "compressor.carried_topk.high": 1.01,
    "compressor.carried_topk.capacity": 1.0, "compressor.covap.ascend_steps": 1,
    "compressor.dct_dp.lifespan": 2, "compressor.dct_dp.refresh": "warmup",
    "compressor.dct_dp.selection": "sample", "compressor.dct_dp.whole": ["w"],
    "compressor.dgc.selection": {"_target_": "compressors.sampled_topk.SampledTopK", "low": 0.99},
    "compressor.netsense.tr_q": 0.05, "compressor.netsense.tr_d": 1e9,
    "compressor.oktopk.threshold_period": 2, "compressor.oktopk.region_period": 2,
    "compressor.oktopk.local_gain": 1.1, "compressor.oktopk.global_gain": 1.1,
    "compressor.powersgd.min_compression_rate": 100.0, "compressor.qsgd.bits": 2,
    "compressor.qsgd.norm": "l2", "compressor.sampled_topk.rounds": 0,
    "compressor.sampled_topk.share": 0.5, "compressor.sampled_topk.low": 0.99,
    "compressor.sampled_topk.high": 1.01, "compressor.threshold_topk.model": "normal",
    "compressor.threshold_topk.spread": "magnitude", "compressor.covap.init": 0.9,
    "compressor.demo.chunk": 32, "compressor.int4.bits": 8, "compressor.int8.bits": 4, "row": 64,
    "compressor.lgreco.alpha": 4.0, "compressor.lgreco.lowest": 0.1, "compressor.lgreco.bins": 100,
    "compressor.sparseloco.chunk": 32, "compressor.sparseloco.bits": 4,
    "compressor.sparseloco.aggregate": "contributors", "controller.cu_target.h_max": 2,
    "horizons": [2, 3], "zeta": 1.0, "controller.oracle_horizon.profile": STATIC,
    "controller.oracle_horizon.workers": 40, "controller.pace_horizon.start": [0.01, 0.02],
    "profile.columns.path": "satellite_pass.csv",
    "profile.columns.columns": {"time_s": "time_s", "rate_mbit": "time_s"},
    "profile.columns.units": {"rate_mbit": 0.1}, "profile.columns.floor_mbit": 60.0,
    "profile.columns.length_s": 400.0, "profile.cooked.floor_mbit": 30.0,
    "profile.cooked.length_s": 700.0, "period": 7, "window": 3, "jitter_ms": 1.0, "k_min": 0.09,
    "k_max": 0.12, "d_min": 0.05, "d_max": 0.02, "controller.ccr_rule.d_min": 0.09,
    "controller.ccr_rule.d_max": 0.11, "controller.dc2_da2.k_max": 0.101,
    "controller.dc2_da3.k_min": 0.099, "controller.deco.d_min": 0.3,
    "controller.gravac.d_min": 0.08, "controller.gravac.d_max": 0.5, "controller.gravac.omega": 0.9,
    "controller.kimad.d_min": 0.3, "controller.netsense.startup_steps": 2,
    "controller.netsense.startup_rtt": 50.0, "controller.oracle.workers": 40,
    "delay_source": {"_target_": "controllers.delay_source.FromProfile", "profile": WAVE},
    "reorder": 0.1, "controller.covap.max_interval": 2, "budget": "hiding", "threshold": "laplace",
    "activations.dct_mp_laplace.threshold": "exact", "controller.dc2_da5.alpha": 2.0,
    "controller.deco.start": [0.01, 0.02], "controller.hide.start": [0.01, 0.02],
    "controller.pace.start": [0.01, 0.02], "spacing": 1.5, "controller.oracle.profile": STATIC,
    "profile.contended.cycles": 2, "profile.contended.up_to": 6,
    "profile.ornstein_uhlenbeck.high_mbit": 300.0, "end": "hold",
    "profile.trace.path": "lte_drive.csv", "profile.trace.length_s": 400.0,
    "profile.steps.steps": [[0, 10], [5, 20]], "profile.steps.repeat_s": 200,
}  # fmt: skip
DENSITIES = {"compressors.covap.COVAP": 0.2}
LISTED = {
    "profile.mahimahi.path": "another file of that kind is not here",
    "profile.cooked.path": "likewise",
    "profile.columns.where": "no column of the traces here tells runs apart",
    "profile.columns.no_reading": "every row of the traces here has a reading",
    "profile.columns.same_time": "no two rows of the traces here have one time",
    "profile.columns.time_format": "times of the traces here are seconds",
    "profile.columns.spacing_s": "likewise",
    "profile.cooked.no_reading": "every row of the traces here has a reading",
    "profile.cooked.same_time": "no two rows of the traces here have one time",
}
PARTS = ("_target_", "of")  # whose fields are those of another choice


def told(group: str, choice: str, field: str = "") -> dict[str, Any]:
    """The section of a choice in its scene, or that of one of its fields, resolved as in a run."""
    own = OmegaConf.load(f"conf/{group}/{choice}.yaml")
    own.pop("defaults", None)
    name = f"{group}.{choice}"
    scene = SCENES.get(name, {}) | SCENES.get(f"{name}.{field}", {})
    section: Any = OmegaConf.to_container(
        OmegaConf.create({**RUN, "part": OmegaConf.merge(own, scene)}).part, resolve=True
    )
    return section


def digest(thing: Any) -> str:
    return hashlib.sha256(repr(thing).encode()).hexdigest()


def bits(tensor: torch.Tensor) -> str:
    return digest(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())


def reduced(section: dict[str, Any]) -> str:
    """What two workers make of some steps of gradients, and in how many bytes."""

    def work(workers: Any) -> list[Any]:
        compressor, sizes, send = build(section), list[int](), workers.all_reduce
        workers.all_reduce = lambda x, *op, **how: (sizes.append(x.nbytes), send(x, *op, **how))[1]
        replaced = "error_feedback" in compressor.replaces
        replica = Replica(workers, compressor, NoFeedback() if replaced else Residual())
        found, density = [], DENSITIES.get(section["_target_"], 0.1)
        for step, (index, of) in product(range(STEPS), enumerate(BUCKETS)):
            replica.weights = {
                n: gradient(prod(shape), step).view(shape) for n, shape in of.items()
            }
            grad = gradient(sum(map(prod, of.values())), 20 * step + 5 * index + workers.rank)
            outcome = replica.reduce(grad, density, step, index, of)
            found.append((bits(outcome.reduced.mean), outcome.contributed_bytes))
        return [*found, sizes]

    return digest(together(2, work))


def chosen(section: dict[str, Any]) -> str:
    """Densities and horizons of a controller, under exchanges that take longer the more is sent."""
    controller, source = build(section), random.Random(1)
    found, density = [], controller.density(None)
    steps = 1
    for step in range(EXCHANGES):
        found.append((density, steps))
        rate = 10_000 * (1 + (step // 30) % 3) * source.lognormvariate(0, 0.3)
        norm = 1 + (step // 20) % 3 + source.random() / 10
        last = (
            seen(
                step, density=density, sent_bytes=round(4000 * density),
                received_bytes=round(12_000 * density), comm_s=0.002 + 4000 * density / rate,
                exposed_s=0.001 + 3000 * density / rate,
                grad_norm=norm, residual_norm=0.5, gain=min(1.0, density**0.3),
                captured=min(1.0, density**0.3), local_steps=steps, compute_s=0.05 * steps,
            )
        )  # fmt: skip
        if controller.chooses_horizon:
            steps = controller.horizon(last)
        density = controller.density(last)
    return digest(found)


def crossed(section: dict[str, Any]) -> str:
    """What crosses a cut and comes back, some times; and what does in evaluation."""
    before, after = build(section), build(section)
    found = [bits(each) for seed in range(4) for each in there_and_back(before, after, seed)]
    return digest([*found, bits(before.forward(rectified(6, 40, 9), False)[0].values)])


def seen_at(section: dict[str, Any]) -> str:
    """Links and flows of a profile at some times."""
    profile = build(section)
    times = [0.0, *(0.37 * tick for tick in range(400)), 1e3, 5e3, 50_000.0]
    links = [profile.link(time, node, way) for time in times for node in (0, 1) for way in WAYS]
    return digest([links, [profile.flows(time) for time in times]])


def build(section: dict[str, Any]) -> Any:
    return instantiate(OmegaConf.create(section), _convert_="all")


DOES: dict[str, Callable[[dict[str, Any]], str]] = {
    "compressor": reduced, "controller": chosen, "activations": crossed, "profile": seen_at,
}  # fmt: skip


def fields() -> Iterator[str]:
    """`group.choice.field`, of every yaml."""
    for group in DOES:
        classes = set[str]()  # of profiles, of which many differ in numbers alone
        for path in sorted(Path("conf", group).glob("*.yaml")):
            section = told(group, path.stem) if "_target_" in path.read_text() else {}
            if group != "profile" or section.get("_target_") not in {None, *classes}:
                classes.add(section["_target_"])
                yield from (f"{group}.{path.stem}.{key}" for key in section if key not in PARTS)


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value / 2 if isinstance(value, float) and value else 0.5


@cache
def usual(group: str, choice: str, field: str) -> str:
    return DOES[group](told(group, choice, field))


@pytest.mark.parametrize("field", [each for each in fields() if each not in LISTED])
def test_another_value_changes_what_the_part_does(field: str) -> None:
    group, choice, key = field.split(".")
    section = told(group, choice, key)
    value = OTHERS.get(field, OTHERS.get(key, other(section[key])))
    assert value != section[key]
    assert DOES[group]({**section, key: value}) != usual(
        group, choice, key if field in SCENES else ""
    )


def test_what_is_listed_is_a_field() -> None:
    assert set(LISTED) <= set(fields())
