"""State dicts: what an object holds comes back from a file, in place; what cannot is told."""

import io
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from harness.engine.training.load_state_dict import load_state_dict
from harness.engine.training.state_dict import state_dict


def through_a_file(thing: Any) -> Any:
    """The state of `thing`, as `torch.load(weights_only=True)` gives it back."""
    file = io.BytesIO()
    torch.save(state_dict(thing), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Phase(Enum):
    PROBE = 1
    STEADY = 2


class Seen(NamedTuple):
    delay_s: float
    names: tuple[str, ...]


@dataclass
class Inner:
    level: float = 0.5
    seen: Seen | None = None


@dataclass(frozen=True)
class Frozen:
    value: int = 1


@dataclass(slots=True)
class Slotted:
    count: int = 0


SHARED = Frozen()  # as a class's default would be


def double(x: float) -> float:
    return 2 * x


class Everything:
    """One of each thing that an algorithm may keep."""

    later: torch.Tensor

    def __init__(self, size: int = 3) -> None:
        self.size, self.none, self.name, self.big = size, None, "a", 1 << 80
        self.pairs: dict[tuple[str, ...], torch.Tensor] = {}
        self.window: deque[float] = deque(maxlen=size)
        self.order: list[Any] = [1, (2.5, "b")]
        self.known: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.ordered: OrderedDict[str, int] = OrderedDict()
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.draw, self.dice = torch.Generator().manual_seed(1), random.Random(1)
        self.grid, self.mean = np.zeros(3, dtype=np.float64), np.float32(0)
        self.inner, self.frozen, self.slotted = Inner(), SHARED, Slotted()
        self.phase, self.dtype, self.rule = Phase.PROBE, torch.int32, double
        self.act: Callable[[], float] = self.probe
        self.again = self.inner
        self.me = self

    def probe(self) -> float:
        return 0.1

    def steady(self) -> float:
        return self.inner.level

    def move(self) -> None:
        """Change all of it, as steps of an algorithm do."""
        self.none, self.name = 3.5, "b"
        base = torch.arange(10.0)
        self.pairs[("x", "y")] = base[2:5]
        self.pairs[("z",)] = torch.tensor([[1, 2], [3, 4]], dtype=torch.int64).t()
        self.window.extend([1.0, 2.0, 3.0, 4.0])
        self.order.append([Inner(0.25)])
        self.known |= {1, 2}
        self.counts["a"] += 2
        self.ordered |= {"b": 1, "a": 2}
        self.sums["q"] += 0.5
        self.draw.initial_seed()
        torch.rand(5, generator=self.draw)
        self.dice.random()
        self.grid = self.grid + 0.5
        self.mean = np.float32(1.25)
        self.inner.level, self.inner.seen = 0.75, Seen(0.5, ("a", "b"))
        self.frozen, self.slotted.count = Frozen(2), 7
        self.phase, self.act = Phase.STEADY, self.steady
        self.later = torch.full((2,), 0.1, dtype=torch.bfloat16)


def test_everything_an_algorithm_may_keep_comes_back() -> None:
    old, new = Everything(), Everything()
    old.move()
    window, inner, pairs = new.window, new.inner, new.pairs
    assert load_state_dict(through_a_file(old), new) is new
    assert new.window is window and new.inner is inner and new.pairs is pairs  # in place
    assert new.again is inner and new.me is new and new.act.__self__ is new
    assert (new.none, new.name, new.big, new.size) == (3.5, "b", 1 << 80, 3)
    assert list(new.pairs) == list(old.pairs)
    for key, value in old.pairs.items():
        assert torch.equal(new.pairs[key], value) and new.pairs[key].dtype == value.dtype
        assert new.pairs[key].stride() == value.stride()
    assert new.window == old.window and new.window.maxlen == 3
    assert new.order[:2] == [1, (2.5, "b")] and new.order[2] == [Inner(0.25)]
    for name in ("known", "counts", "ordered", "sums", "inner", "frozen", "slotted", "mean"):
        assert getattr(new, name) == getattr(old, name), name
        assert type(getattr(new, name)) is type(getattr(old, name)), name
    assert list(new.ordered) == list(old.ordered) and new.sums["unknown"] == 0.0
    assert (new.grid == old.grid).all() and new.grid.dtype == old.grid.dtype
    assert new.phase is Phase.STEADY and new.dtype is torch.int32 and new.rule is double
    assert new.act() == 0.75
    assert torch.equal(new.later, old.later) and new.later.dtype == torch.bfloat16
    assert torch.equal(torch.rand(4, generator=new.draw), torch.rand(4, generator=old.draw))
    assert new.dice.random() == old.dice.random()
    assert Frozen() == SHARED


def test_a_view_is_kept_without_the_memory_it_is_a_part_of() -> None:
    file = io.BytesIO()
    torch.save(state_dict({"part": torch.zeros(1_000_000)[:10]}), file)
    assert file.tell() < 10_000


@dataclass
class Holder:
    held: Any = None
    inside: list[Any] = field(default_factory=list)


@pytest.mark.parametrize(
    "thing", [threading.Lock(), iter([1]), (x for x in ()), np.array([object()]), memoryview(b"a")]
)
def test_what_cannot_be_kept_is_named_with_its_place(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"compressor\.inside\[1\].* checkpoint"):
        state_dict(Holder(inside=[0, thing]), "compressor")


@pytest.mark.parametrize(
    ("kept", "fresh"),
    [
        (Holder([1]), Holder({})),
        (Holder("a"), Holder(0.5)),
        (Holder(torch.zeros(2)), Holder([1])),
        (Holder(Inner()), Holder(Seen(0.0, ()))),
        (Holder((1,)), Holder([1])),
        (Holder(deque()), Holder([])),
        (Inner(), Slotted()),
    ],
)
def test_state_of_another_kind_is_refused_with_its_place(kept: Any, fresh: Any) -> None:
    with pytest.raises(ValueError, match=r"controller\S* is a \w+ and the checkpoint has a"):
        load_state_dict(through_a_file(kept), fresh, "controller")


def test_an_attribute_that_was_not_kept_is_named() -> None:
    kept, fresh = through_a_file(Holder()), Holder()
    fresh.newer = 1
    with pytest.raises(ValueError, match=r"controller\.newer is not in the checkpoint"):
        load_state_dict(kept, fresh, "controller")


HERE = "tests.training.test_state_dict"


@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "os:system",
        "builtins:eval",
        f"{HERE}:torch.os.system",
        f"{HERE}:threading.Thread",
        f"{HERE}:double",
        f"{HERE}:Everything.probe",
        f"{HERE}:",
        HERE,
        "",
    ],
)
@pytest.mark.parametrize("kind", ["object", "code", "record", "choice"])
def test_no_class_of_elsewhere_is_looked_up(name: str, kind: str) -> None:
    content: list[Any] = {"object": [[]], "code": [], "record": [[]], "choice": ["A"]}[kind]
    for kept in ((kind, name, *content), ("list", "list", [(kind, name, *content)])):
        state = ("object", f"{HERE}:Holder", [("held", kept), ("inside", None)])
        with pytest.raises(ValueError, match=r"none of ours|a NoneType and the checkpoint"):
            load_state_dict(state, Holder())


CRAFTED: dict[str, Any] = {
    "an attribute that no object of the class has": ("object", f"{HERE}:Everything", [("run", 1)]),
    "a value in place of a method": ("object", f"{HERE}:Everything", [("probe", 1)]),
    "a class": ("object", f"{HERE}:Holder", [("__class__", 1), ("held", 0), ("inside", None)]),
    "a way of the loader itself": ("find", "os:system"),
    "another": ("class", "os:system"),
    "what is no kind": ("popen", "touch"),
    "too many items": ("tuple", [1], 2),
    "too few": ("deque", "deque"),
    "a container that is none": ("list", "Popen", []),
    "a type of torch's that is none": ("dtype", "load"),
    "a device that is none": ("device", "fpga:0"),
    "what was never met": ("again", 7),
    "a record of a class that is none": ("record", f"{HERE}:Holder", [1]),
    "a choice of a class that is none": ("choice", f"{HERE}:Holder", "held"),
    "a method of nobody": ("method", None, "probe"),
    "a name that is a number": ("object", 3, []),
    "items that are none": ("tuple", 3),
    "a generator's state that is none": ("torch generator", "cpu", torch.zeros(3)),
    "random numbers' state that is none": ("random", ("tuple", [3, 1, 2])),
}


@pytest.mark.parametrize("kept", CRAFTED.values(), ids=CRAFTED)
def test_what_no_state_dict_has_is_refused_with_its_place(kept: Any) -> None:
    for fresh, within in ((Everything(), kept), (Holder(), in_holder(kept)), (Holder(), kept)):
        before = dict(vars(type(fresh)))
        with pytest.raises(ValueError, match="^compressor"):
            load_state_dict(through_a_file_as_it_is(within), fresh, "compressor")
        assert dict(vars(type(fresh))) == before and callable(fresh.__init__)


def in_holder(kept: Any) -> Any:
    return ("object", f"{HERE}:Holder", [("held", kept), ("inside", None)])


def through_a_file_as_it_is(kept: Any) -> Any:
    file = io.BytesIO()
    torch.save(kept, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_value_never_hides_a_method() -> None:
    """It would be called at the next step."""
    kept = state_dict(Everything())
    kept[2].append(("probe", ("method", ("again", 0), "move")))
    with pytest.raises(ValueError, match=r"probe is no state of a Everything"):
        load_state_dict(kept, Everything())
