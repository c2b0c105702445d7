"""State dicts: what an object holds comes back from a file, in place; what cannot is told."""

import io
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from harness.engine.training.state import load_state_dict, state_dict
from harness.records.checkpoint import BadCheckpoint


def through_a_file(thing: Any) -> Any:
    """The state of `thing`, as `torch.load(weights_only=True)` gives it back."""
    return through_a_file_as_it_is(state_dict(thing))


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


class Everything:
    """One of each thing that an algorithm may keep."""

    later: torch.Tensor
    order: list[Inner]
    by_name: dict[str, Seen]

    def __init__(self, size: int = 3) -> None:
        self.size, self.none, self.name = size, None, "a"
        self.pairs: dict[tuple[str, ...], torch.Tensor] = {}
        self.window: deque[float] = deque(maxlen=size)
        self.order, self.by_name = [], {}
        self.mixed: list[Any] = [1, (2.5, "b")]
        self.known: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.ordered: OrderedDict[str, int] = OrderedDict()
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.draw, self.dice = torch.Generator().manual_seed(1), random.Random(1)
        self.mean = np.float64(0)
        self.inner, self.frozen, self.slotted = Inner(), SHARED, Slotted()
        self.dtype = torch.int32

    @cached_property
    def total(self) -> float:
        return sum(self.window)

    def move(self) -> None:
        """Change all of it, as steps of an algorithm do."""
        self.none, self.name = 3.5, "b"
        base = torch.arange(10.0)
        self.pairs[("x", "y")] = base[2:5]
        self.pairs[("z",)] = torch.tensor([[1, 2], [3, 4]], dtype=torch.int64).t()
        self.window.extend([1.0, 2.0, 3.0, 4.0])
        self.order.append(Inner(0.25, Seen(0.1, ())))
        self.by_name["first"] = Seen(0.5, ("a", "b"))
        self.mixed.append([None])
        self.known |= {1, 2}
        self.counts["a"] += 2
        self.ordered |= {"b": 1, "a": 2}
        self.sums["q"] += 0.5
        torch.rand(5, generator=self.draw)
        self.dice.random()
        self.mean = np.float64(1.25)
        self.inner.level, self.inner.seen = 0.75, Seen(0.5, ("a", "b"))
        self.frozen, self.slotted.count = Frozen(2), 7
        self.later = torch.full((2,), 0.1, dtype=torch.bfloat16)


def test_everything_an_algorithm_may_keep_comes_back() -> None:
    old, new = Everything(), Everything()
    old.move()
    window, inner, pairs = new.window, new.inner, new.pairs
    assert (old.total, new.total) == (9.0, 0)
    assert load_state_dict(through_a_file(old), new) is new
    assert new.window is window and new.inner is inner and new.pairs is pairs  # in place
    assert (new.none, new.name, new.size, new.total) == (3.5, "b", 3, 9.0)
    assert list(new.pairs) == list(old.pairs)
    for key, value in old.pairs.items():
        assert torch.equal(new.pairs[key], value) and new.pairs[key].dtype == value.dtype
        assert new.pairs[key].stride() == value.stride()
    assert new.window == old.window and new.window.maxlen == 3
    assert new.mixed == [1, (2.5, "b"), [None]]
    same = ("order", "by_name", "known", "counts", "ordered", "sums", "inner", "frozen", "slotted")
    for name in same:
        assert getattr(new, name) == getattr(old, name), name
        assert type(getattr(new, name)) is type(getattr(old, name)), name
    assert type(new.by_name["first"]) is Seen and type(new.order[0].seen) is Seen
    assert list(new.ordered) == list(old.ordered) and new.sums["unknown"] == 0.0
    assert new.mean == 1.25 and new.dtype is torch.int32
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
    held: object = None
    inside: list[Any] = field(default_factory=list)


@pytest.mark.parametrize(
    "thing",
    [
        *(threading.Lock(), iter([1]), (x for x in ()), np.zeros(3), np.float32(1),
          memoryview(b"a")),
        *(len, float, Inner(), Seen(0.0, ())),  # the last two: without an annotation
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_named_with_its_place(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"compressor\.inside\[1\].* checkpoint"):
        state_dict(Holder(inside=[0, thing]), "compressor")


@pytest.mark.parametrize(("kept", "fresh"), [
    (Holder([1]), Holder({})),
    (Holder("a"), Holder(0.5)),
    (Holder(torch.zeros(2)), Holder([1])),
    (Holder(Inner()), Holder(Seen(0.0, ()))),
    (Holder((1,)), Holder([1])),
    (Holder({}), Holder(Inner())),
    (Holder(True), Holder(1)),
    (Holder(1), Holder(True)),
    (Inner(1.0), Holder()),
])  # fmt: skip
def test_state_of_another_kind_is_refused_with_its_place(kept: Any, fresh: Any) -> None:
    with pytest.raises(ValueError, match=r"controller\S* is (a \w+ and|not in) the checkpoint"):
        load_state_dict(through_a_file(kept), fresh, "controller")


def test_an_attribute_that_was_not_kept_is_named() -> None:
    kept, fresh = through_a_file(Holder()), Holder()
    fresh.newer = 1  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"controller\.newer is not in the checkpoint"):
        load_state_dict(kept, fresh, "controller")


def changed(name: str, value: Any) -> Any:
    """The state of `Everything`, with another value of one attribute."""
    return state_dict(Everything()) | {name: value}


CRAFTED: dict[str, Any] = {
    "an attribute that no object of the class has": changed("run", 1),
    "a value in place of a method": changed("move", 1),
    "a class": changed("__class__", 1),
    "a list": [1],
    "nothing": {},
    "no state": None,
    "a name that is a number": {3: 1},
    "an object that is a list": changed("inner", []),
    "items of another class": changed("order", [("a", 1)]),
    "an item that lacks an attribute": changed("order", [{"level": 1.0}]),
    "an item that has another attribute": changed("order", [{"level": 1.0, "seen": None, "a": 1}]),
    "too few items of a record": changed("by_name", {"a": (1.0,)}),
    "a dictionary with other keys": changed("by_name", {1: (1.0, ())}),
    "another type of torch's": changed("dtype", torch.float32),
    "a generator's state that is none": changed("draw", torch.zeros(3)),
    "random numbers' state that is none": changed("dice", (3, 1, 2)),
    "a number of too many bits": changed("size", 1 << 70),
    "a dictionary in place of a tensor": changed("later", {}),
}


@pytest.mark.parametrize("kept", CRAFTED.values(), ids=CRAFTED)
def test_what_no_state_dict_has_is_refused_with_its_place(kept: Any) -> None:
    fresh, before = Everything(), dict(vars(Everything))
    with pytest.raises(BadCheckpoint, match="^compressor"):
        load_state_dict(through_a_file_as_it_is(kept), fresh, "compressor")
    assert dict(vars(Everything)) == before and callable(fresh.move)


def through_a_file_as_it_is(kept: Any) -> Any:
    file = io.BytesIO()
    torch.save(kept, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("wide", [1, 2])
def test_a_state_that_is_nested_without_end_is_refused(wide: int) -> None:
    """One that refers to itself twice at each level has more values than any memory."""
    kept: list[Any] = []
    for _ in range(49 if wide == 2 else 60):
        kept = [kept] * wide
    with pytest.raises(BadCheckpoint, match="compressor is of more than 50 levels or 1"):
        load_state_dict(kept, [], "compressor")


def test_what_holds_itself_is_named() -> None:
    thing = Holder()
    thing.inside = [thing.inside]
    holder = Holder(thing)
    thing.held = holder
    with pytest.raises(TypeError, match=r"compressor\.held\.held\..* checkpoint"):
        state_dict(holder, "compressor")
