"""State dicts of every compressor and controller: each yaml of conf is tested by being there.

What was taken after some steps and put into a new object gives the same next steps, bit for bit.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from compressors import kernels, workspace
from compressors.base import Bucket
from compressors.buffers import Buffers
from harness.engine.exchange.feedback import Residual
from harness.engine.training.state import fit_parameters, load_state_dict, state_dict
from harness.records.checkpoint import BadCheckpoint
from tests.compressors.reductions import Replica, Shapes, bits, build, gradient, variants
from tests.compressors.threads import ThreadWorkers, together
from tests.controllers.test_contract import CHOICES, delays, observation
from tests.controllers.test_contract import build as build_controller
from tests.training.test_state_dict import through_a_file

PARAMETERS: Shapes = {"embed": (12, 40), "bias": (33,), "kernel": (8, 3, 3, 3), "scale": (1,)}
BUCKETS = (("scale", "kernel"), ("bias", "embed"))
BEFORE, AFTER, SIZE = 5, 4, 3


def steps(replica: Replica, first: int, count: int) -> list[Tensor]:
    """The means of `count` steps, and of each what was left unsent."""
    found = []
    for step in range(first, first + count):
        for index, names in enumerate(BUCKETS):
            of = {name: PARAMETERS[name] for name in names}
            n = sum(prod(shape) for shape in of.values())
            grad = gradient(n, 100 * step + 10 * index + replica.workers.rank)
            mean, unsent = replica.reduce(grad, 0.2, step, index, of).reduced
            found += [mean, mean if unsent is None else unsent]
    return found


@pytest.mark.parametrize("feeds_back", [False, True])
@pytest.mark.parametrize("variant", variants())
def test_a_compressor_goes_on_from_its_state_dict(variant: str, feeds_back: bool) -> None:
    def new(workers: ThreadWorkers) -> Replica:
        replica = Replica(workers, build(variant))
        if feeds_back and "error_feedback" not in replica.compressor.replaces:
            replica.feedback = Residual()
        return replica

    def work(workers: ThreadWorkers) -> bool:
        straight, resumed = new(workers), new(workers)
        steps(straight, 0, BEFORE)
        load_state_dict(through_a_file(straight.compressor), resumed.compressor)
        load_state_dict(through_a_file(straight.feedback), resumed.feedback)
        expected = steps(straight, BEFORE, AFTER)
        found = steps(resumed, BEFORE, AFTER)
        return all(
            torch.equal(bits(a), bits(b)) for a, b in zip(expected, found, strict=True)
        )  # fmt: skip

    assert all(together(SIZE, work))


def choices(controller: Any, first: int, delays_s: list[float]) -> list[Any]:
    found = []
    for step, delay_s in enumerate(delays_s, first):
        density = controller.density(observation(step, delay_s) if step else None)
        found.append((density, controller.state()))
    return found


@pytest.mark.parametrize("kind", ["log-normal", "jumping"])
@pytest.mark.parametrize("name", CHOICES)
def test_a_controller_goes_on_from_its_state_dict(name: str, kind: str) -> None:
    delays_s = delays(kind, 120)
    for before in (1, 60):
        straight, resumed = build_controller(name), build_controller(name)
        choices(straight, 0, delays_s[:before])
        assert load_state_dict(through_a_file(straight), resumed) is resumed
        expected = choices(straight, before, delays_s[before:])
        assert choices(resumed, before, delays_s[before:]) == expected


def kinds(value: Any, place: str = "") -> dict[str, Any]:
    """The kind of everything that `value` consists of, by place."""
    if isinstance(value, Tensor):
        return {place: (value.dtype, value.shape, value.device, value.is_contiguous())}
    inner: dict[str, Any] = {}
    if isinstance(value, dict):
        inner = {f"[{key!r}]": held for key, held in value.items()}
    elif isinstance(value, (list, tuple, deque)):
        inner = {f"[{at}]": held for at, held in enumerate(value)}
    elif hasattr(value, "__dict__") and not OmegaConf.is_config(value):
        declared = fields(value) if is_dataclass(value) else ()
        names = {*vars(value), *(each.name for each in declared)}
        inner = {f".{name}": getattr(value, name, None) for name in names}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    found = {place: "number" if number else type(value)}
    for name, held in inner.items():
        found |= kinds(held, place + name)
    return found


def places(kept: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every value inside a state, and inside its dictionaries."""
    inner = enumerate(kept) if isinstance(kept, (tuple, list)) else ()
    inner = kept.items() if isinstance(kept, dict) else inner
    return [path, *(deeper for key, held in inner for deeper in places(held, (*path, key)))]


def replaced(kept: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of `kept` whose value at `path` is changed."""
    if not path:
        return change(kept)
    items = dict(kept) if isinstance(kept, dict) else list(kept)
    items[path[0]] = replaced(items[path[0]], path[1:], change)
    return type(kept)(items)


OTHERS = (
    *(None, True, "x", -1, 1 << 70, 0.5, float("nan"), [1], (), {"a": 1}, {}, ("a",), {(): 1}),
    *(torch.zeros(1), torch.zeros(3, dtype=torch.float64)),
)


def changed(value: Any, dice: random.Random) -> Any:
    """Another value in place of `value`."""
    if isinstance(value, torch.Tensor) and dice.random() < 0.8:
        return dice.choice([
            value.double(), value.int(), value.flatten()[:1], value.repeat(2, *value.shape),
            value.to("meta"), value.flatten()[:1].expand(max(2, value.numel())),
            torch.full_like(value, float("nan") if value.is_floating_point() else -1),
            torch.nn.Parameter(value.float()), value.to_sparse() if value.dim() else value[None],
        ])  # fmt: skip
    if isinstance(value, dict) and value and dice.random() < 0.6:
        key = dice.choice(list(value))
        rest = {name: held for name, held in value.items() if name != key}
        other = key[:-1] if key and isinstance(key, (str, tuple)) else "x"
        return dice.choice(
            [rest, value | {"__class__": 1}, value | {0: 1}, rest | {other: value[key]}]
        )
    if isinstance(value, (list, tuple)) and value and dice.random() < 0.6:
        at = dice.randrange(len(value))
        return type(value)([*value[:at], *value[at + 1 :]] if dice.random() < 0.5 else [*value, 1])
    return dice.choice(OTHERS)


class Guards:
    """Tensors between bytes that nothing may write to."""

    BYTES, VALUE = 4096, 0xA5  # a kernel writes blocks of 256 bytes, and chunks of 16 KiB

    def __init__(self) -> None:
        self._memory: list[tuple[Tensor, int]] = []  # with the bytes of the tensor in it

    def empty(self, n: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """Return a tensor, [n]; it stands in for `torch.empty`."""
        nbytes = n * dtype.itemsize
        memory = torch.full((2 * self.BYTES + nbytes,), self.VALUE, dtype=torch.uint8)
        self._memory.append((memory, nbytes))
        return memory[self.BYTES : self.BYTES + nbytes].view(dtype)

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of `tensor` in the same layout."""
        copied = self.empty(tensor.numel(), tensor.dtype)
        return copied.as_strided(tensor.size(), tensor.stride()).copy_(tensor)

    def move_in(self, thing: Any) -> Any:
        """Replace all tensors that `thing` holds by guarded copies; return what replaces it."""
        if isinstance(thing, Tensor):
            return self.copy(thing)
        if isinstance(thing, dict):
            thing.update({key: self.move_in(held) for key, held in thing.items()})
        elif hasattr(thing, "_fields"):
            return type(thing)(*map(self.move_in, thing))
        elif hasattr(thing, "__dict__") and type(thing).__module__.startswith("compressors"):
            vars(thing).update({name: self.move_in(held) for name, held in vars(thing).items()})
        elif isinstance(thing, Residual):
            self.move_in(thing._buckets)
        return thing

    def broken(self) -> int:
        """Count the tensors beside which something was written."""
        return sum(
            bool((memory[: self.BYTES] != self.VALUE).any())
            or bool((memory[self.BYTES + nbytes :] != self.VALUE).any())
            for memory, nbytes in self._memory
        )


class Trained(NamedTuple):
    """A compressor, a residual or a controller after some steps."""

    part: Any
    new: Callable[[], Any]
    replicas: Sequence[Replica] = ()  # of all ranks; none of a controller

    def step_from(self, fresh: Any, guards: Guards) -> None:
        """Take one more step with `fresh` in place of this part at rank 0, in guarded memory."""
        if not self.replicas:
            choices(fresh, 60, delays("log-normal", 2))
            return

        def work(workers: ThreadWorkers) -> None:
            old = self.replicas[workers.rank]
            compressor, feedback = deepcopy([old.compressor, old.feedback])
            if workers.rank == 0:
                is_feedback = self.part is old.feedback
                compressor, feedback = (compressor, fresh) if is_feedback else (fresh, feedback)
            guards.move_in(compressor)
            guards.move_in(feedback)
            for index, names in enumerate(BUCKETS):
                sizes = [prod(PARAMETERS[name]) for name in names]
                grad = guards.copy(gradient(sum(sizes), workers.rank))
                residual = feedback.recall(names, sizes, grad)
                out = grad if residual is not None else guards.copy(grad)
                shapes = [torch.Size(PARAMETERS[name]) for name in names]
                bucket = Bucket(index, BEFORE, names, shapes, Buffers(grad, residual, out))
                reduced = compressor.reduce(bucket, 0.2, workers)
                feedback.keep(names, reduced.unsent)

        together(SIZE, work)


def test_a_write_past_a_tensor_is_noticed() -> None:
    guards, native = Guards(), kernels.compiled()
    assert native is not None, kernels.path()
    short, packed = guards.empty(100, torch.float32), guards.empty(16, torch.uint8)
    longer = short.as_strided((104,), (1,))  # a size that a damaged state would have told
    native.signs.add(longer[:100].numpy(), packed.numpy(), np.float32(1))
    assert guards.broken() == 0
    native.signs.add(longer.numpy(), packed.numpy(), np.float32(1))
    assert guards.broken() == 1


def learnt() -> Iterator[Trained]:
    """Each compressor, its residual and each controller after some steps, and one that is new."""
    for variant in variants():
        name = str(getattr(variant, "values", [variant])[0])

        def worked(workers: ThreadWorkers, name: str = name) -> Replica:
            replica = Replica(workers, build(name))
            if "error_feedback" not in replica.compressor.replaces:
                replica.feedback = Residual()
            steps(replica, 0, BEFORE)
            return replica

        replicas = together(SIZE, worked)
        yield Trained(replicas[0].compressor, partial(build, name), replicas)
        if isinstance(replicas[0].feedback, Residual):
            yield Trained(replicas[0].feedback, Residual, replicas)
    for name in CHOICES:
        choices(controller := build_controller(name), 0, delays("log-normal", 60))
        yield Trained(controller, partial(build_controller, name))


@pytest.mark.parametrize("count", [200, pytest.param(3600, marks=pytest.mark.faults)])
def test_a_mutated_state_is_refused_in_a_line_or_is_of_the_same_kinds(count, monkeypatch):
    """What is loaded takes a step, which writes nothing beside the tensors that it was given."""
    dice, parameters = random.Random(count), {n: torch.zeros(s) for n, s in PARAMETERS.items()}
    told: Counter[str] = Counter({"refused": 0, "writes outside": 0})
    parts = list(learnt())
    for number in range(count):
        trained = parts[number % len(parts)]
        kept = state_dict(trained.part)
        path = dice.choice(places(kept))
        mutated, fresh = replaced(kept, path, partial(changed, dice=dice)), trained.new()
        try:
            load_state_dict(mutated, fresh, "part")
            if trained.replicas:
                fit_parameters(fresh, parameters, trained.replicas[0].workers, "part")
        except BadCheckpoint as refusal:
            told["refused"] += 1
            told["of several lines"] += "\n" in str(refusal) or len(str(refusal)) > 510
            continue
        except Exception as error:
            told[f"traceback: {type(error).__name__}"] += 1
            continue
        told["loaded"] += 1
        expected, found, before = kinds(trained.part), kinds(fresh), kinds(trained.new())
        for place in expected.keys() & found.keys():
            told["wrong kind"] += found[place] not in (expected[place], before.get(place))
        guards = Guards()
        monkeypatch.setattr(workspace, "torch", SimpleNamespace(empty=guards.empty))
        try:
            trained.step_from(fresh, guards)
            told["took a step"] += 1
        except Exception as error:
            told[f"failed in the step: {type(error).__name__}"] += 1
        told["writes outside"] += guards.broken()
    print(f"{count} mutated states: {dict(told)}")
    assert told["refused"] + told["loaded"] == count, told
    assert told["of several lines"] == told["wrong kind"] == told["writes outside"] == 0, told
    assert told["refused"] and told["took a step"], told
