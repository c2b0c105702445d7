"""Threads of a virtual world: whose turn it is, what is each one's own, and how they end."""

from functools import partial

import pytest
import torch

from compressors.workspace import workspace
from harness.virtual.clock import VirtualClock
from harness.virtual.valueless import on
from harness.virtual.world import Left, Stuck, World

CPU = torch.device("cpu")


def done(*works, aside: int = 0) -> World:
    """A world in which each of `works`, called with it, was a thread; the last `aside` serve."""
    world = World(CPU)
    for rank, work in enumerate(works):
        serves = rank >= len(works) - aside
        world.begin(partial(work, world), rank, f"rank {rank}", aside=serves)
    world.run()
    return world


def well(*works, **more) -> None:
    if failure := done(*works, **more).failure:
        raise failure[1]


def test_who_is_behind_goes_on():
    said = []

    def walks(world: World, name: str, every_s: float) -> None:
        for n in range(1, 4):
            world.sleep_until(n * every_s)
            said.append((n * every_s, name))

    well(partial(walks, name="a", every_s=2.0), partial(walks, name="b", every_s=3.0))
    assert said == sorted(said) and [name for _, name in said] == list("abaabb")


def test_gradients_are_off_for_the_thread_that_turned_them_off():
    seen = {}

    def off(world: World) -> None:
        with torch.no_grad():
            world.sleep_until(2.0)
            seen["off"] = torch.is_grad_enabled()
        seen["on again"] = torch.is_grad_enabled()

    def other(world: World) -> None:
        world.sleep_until(1.0)
        seen["other"] = torch.is_grad_enabled()
        world.sleep_until(3.0)

    well(off, other)
    assert seen == {"off": False, "on again": True, "other": True}


def test_random_numbers_are_a_rank_s_own():
    drawn = {}

    def draws(world: World, rank: int) -> None:
        torch.manual_seed(rank)
        found = []
        for n in range(3):
            found.append(float(torch.rand(())))
            world.sleep_until(n + 1.0)
        drawn[rank] = found

    well(*(partial(draws, rank=rank) for rank in range(2)))
    for rank, found in drawn.items():
        torch.manual_seed(rank)
        assert found == [float(torch.rand(())) for _ in range(3)]


def tells_values() -> bool:
    """Whether who asks a tensor without values for one is told 0."""
    try:
        return torch.empty(1, device="meta").item() == 0
    except RuntimeError:
        return False


def test_what_threads_keep_is_each_one_s_own():
    kept, told = {}, {}

    def keeps(world: World, rank: int) -> None:
        mine = workspace("payload", 4, torch.float32, CPU).fill_(rank)
        with on(torch.empty(1, device="meta" if rank else "cpu")):
            world.sleep_until(1.0)
            told[rank] = tells_values()
        kept[rank] = mine.tolist()

    well(*(partial(keeps, rank=rank) for rank in range(2)))
    assert kept == {0: [0.0] * 4, 1: [1.0] * 4} and told == {0: False, 1: True}


def test_one_that_fails_ends_the_others_in_order():
    ended = []

    def fails(world: World) -> None:
        world.sleep_until(1.0)
        raise ArithmeticError("on purpose")

    def waits(world: World) -> None:
        try:
            world.wait(lambda: None)
        finally:
            ended.append("tidy")
            with pytest.raises(Left):
                world.sleep_until(5.0)

    world = done(fails, waits)
    assert ended == ["tidy"]
    assert world.failure is not None
    rank, error = world.failure
    assert rank == 0 and isinstance(error, ArithmeticError)


def test_those_who_wait_for_each_other_are_named():
    world = done(lambda world: world.wait(lambda: None), lambda world: world.wait(lambda: None))
    assert world.failure is not None
    _, error = world.failure
    assert isinstance(error, Stuck) and "rank 0, rank 1" in str(error)


def test_who_serves_ends_with_those_whom_it_serves():
    ended = []

    def serves(world: World) -> None:
        try:
            world.wait(lambda: None)
        finally:
            ended.append(world.now_s)

    well(lambda world: world.sleep_until(1.0), serves, aside=1)
    assert len(ended) == 1


def test_nobody_waits_where_torch_keeps_what_is_the_thread_s():
    def waits(world: World) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            world.sleep_until(1.0)

    with pytest.raises(AssertionError, match="waits under autocast"):
        well(waits, lambda world: world.sleep_until(0.5))


@pytest.mark.parametrize("timed", ["computing", "compressing"])
def test_nobody_waits_while_its_work_is_timed(timed):
    def waits(world: World) -> None:
        clock = VirtualClock(world, 1.0, 1.0, None, CPU)
        with clock.computing() if timed == "computing" else clock.compressing(1):
            world.sleep_until(1.0)

    with pytest.raises(AssertionError, match="waited while its work was timed"):
        well(waits, lambda world: world.sleep_until(0.5))


def test_an_error_of_torch_s_own_can_be_caught_in_every_thread():
    """Torch unwinds the stack of C as it raises; in a moved stack that ended the process."""
    caught = []

    def fails(world: World, at_s: float) -> None:
        for wrong in (lambda: torch.zeros(2) + torch.zeros(3), lambda: torch.zeros(2)[5]):
            world.sleep_until(at_s)
            with pytest.raises((RuntimeError, IndexError)):
                wrong()
            caught.append(at_s)

    def begins_more(world: World, at_s: float) -> None:
        world.begin(partial(fails, world, at_s + 1), 0, "more", world.now_s)
        list(map(partial(fails, world), [at_s]))  # with frames of C between

    well(*(partial(begins_more, at_s=float(rank)) for rank in range(4)))
    assert len(caught) == 16
