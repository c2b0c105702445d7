"""Orders in which a stage computes its micro-batches. Backward keeps their order."""

from collections.abc import Callable, Iterator

Work = tuple[str, int]  # forward | backward, number of the micro-batch


def gpipe(stage: int, stages: int, parts: int) -> Iterator[Work]:
    """Yield all forward, then all backward parts (Huang et al., 2019); keeps all activations."""
    yield from (("forward", part) for part in range(parts))
    yield from (("backward", part) for part in range(parts))


def one_forward_one_backward(stage: int, stages: int, parts: int) -> Iterator[Work]:
    """Yield 1F1B with a flush (Narayanan et al., 2021); keeps at most stages - stage parts."""
    ahead = min(parts, stages - 1 - stage)
    yield from (("forward", part) for part in range(ahead))
    for part in range(parts - ahead):
        yield "forward", ahead + part
        yield "backward", part
    yield from (("backward", part) for part in range(parts - ahead, parts))


SCHEDULES: dict[str, Callable[[int, int, int], Iterator[Work]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
}
