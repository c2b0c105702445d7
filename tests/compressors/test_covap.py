"""COVAP: which part goes when, by the paper's numbers, and its recurrence in float64."""

from collections.abc import Callable
from itertools import pairwise
from math import prod

import numpy as np
import pytest
import torch

from compressors.covap import COVAP, interval, shards
from harness.engine.exchange.feedback import Feedback, NoFeedback, Residual
from tests.compressors.reductions import Outcome, Replica, Shapes, gradient
from tests.compressors.threads import ThreadWorkers, together

VGG19 = [4101096, 16781312, 107480576, 7079424, 7669760, 555072]  # elements by bucket


def test_the_interval_is_the_least_that_sends_no_more_than_the_density() -> None:
    for every in range(1, 2000):
        share = 1 / every
        for near in (share, (share + share + share) / 3, float(np.nextafter(share, 0))):
            assert interval(near) == every
    assert [interval(density) for density in (1.0, 0.99, 0.49, 0.3, 0.25)] == [1, 2, 3, 4, 4]
    densities = np.linspace(1e-4, 1, 5000).tolist()
    assert all(interval(low) >= interval(high) for low, high in pairwise(densities))


@pytest.mark.parametrize(("every", "expected"), [
    (19, [1, 2, 14, 1, 1, 1]),  # median 7374592
    (4, [1, 2, 4, 1, 1, 1]),
    (1, [1] * 6),
])  # fmt: skip
def test_the_buckets_of_vgg19_are_cut_as_in_the_paper(every: int, expected: list[int]) -> None:
    assert shards(VGG19, every) == expected


def test_buckets_of_one_size_are_not_cut() -> None:
    assert shards([7] * 5, 4) == [1] * 5
    assert shards([7], 4) == [1]


@pytest.mark.parametrize(("every", "at"), [
    (4, {0: 0.5, 49: 0.5, 50: 0.6, 149: 0.7, 249: 0.9, 250: 1.0, 10_000: 1.0}),
    (8, {0: 0.5, 50: 0.6}),
    (9, {0: 0.2, 99: 0.2, 100: 0.3, 799: 0.9, 800: 1.0, 10_000: 1.0}),
])  # fmt: skip
def test_the_coefficient_is_that_of_the_authors_code(every: int, at: dict[int, float]) -> None:
    assert {step: COVAP().coefficient(step, every) for step in at} == pytest.approx(at)
    assert COVAP(init=0.3, ascend_range=0.2, ascend_steps=7).coefficient(15, 9) == pytest.approx(
        0.7
    )


Layout = list[Shapes]  # the parameters of every bucket


def train(
    size: int,
    layouts: list[Layout],
    density: Callable[[int], float],
    make: Callable[[], COVAP],
    feedback: Callable[[], Feedback],
) -> list[list[list[Outcome]]]:
    """Outcomes by worker, step and bucket; `layouts` by step."""

    def work(workers: ThreadWorkers) -> list[list[Outcome]]:
        replica = Replica(workers, make(), feedback())
        return [
            [
                replica.reduce(flat(of, workers.rank, step), density(step), step, index, of)
                for index, of in enumerate(layout)
            ]
            for step, layout in enumerate(layouts)
        ]

    return together(size, work)


def parameter(name: str, shape: tuple[int, ...], rank: int, step: int) -> torch.Tensor:
    return gradient(prod(shape), sum(name.encode()) + 1000 * rank + 31 * step)


def flat(of: Shapes, rank: int, step: int) -> torch.Tensor:
    return torch.cat([parameter(name, shape, rank, step) for name, shape in of.items()])


def sizes(layout: Layout) -> list[int]:
    return [sum(prod(shape) for shape in of.values()) for of in layout]


def test_the_filter_takes_turns_as_in_the_papers_formula() -> None:
    """I = 4, buckets of one size: unit 0 at steps 0 and 4, unit 1 at 3 and 7."""
    layout: Layout = [{f"p{index}": (10,)} for index in range(6)]
    (steps,) = train(1, [layout] * 8, lambda step: 0.25, COVAP, NoFeedback)
    went = [[index for index, one in enumerate(step) if one.contributed_bytes] for step in steps]
    assert went == [[0, 4], [3], [2], [1, 5]] * 2


def test_without_sharding_a_bucket_goes_whole_in_its_turn() -> None:
    layout: Layout = [{f"p{index}": (n,)} for index, n in enumerate([4, 90, 4, 4])]
    make = lambda: COVAP(sharding=False)  # noqa: E731
    (steps,) = train(1, [layout] * 8, lambda step: 0.25, make, NoFeedback)
    went = [[one.contributed_bytes // 4 for one in step] for step in steps]
    assert went == [[4, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0], [0, 90, 0, 0]] * 2


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("of", [[1], [5], [9, 9], [1, 2, 40, 7, 8], [300, 3, 4, 1, 2, 3, 11, 3]])
def test_every_element_goes_once_in_any_interval(of: list[int], every: int) -> None:
    """From the second exchange on, as units of at most a median's size or an I-th of a bucket."""
    layout: Layout = [{f"p{index}": (n,)} for index, n in enumerate(of)]
    steps = 3 * every + 1
    (seen,) = train(1, [layout] * steps, lambda step: 1 / every, COVAP, NoFeedback)
    went = np.stack([np.concatenate([one.reduced.mean != 0 for one in step]) for step in seen])
    for first in range(1, steps - every + 1):
        assert np.all(went[first : first + every].sum(0) == 1)
    for step in seen[1:]:
        for one, n in zip(step, of, strict=True):
            assert one.contributed_bytes <= 4 * max(2 * np.median(of), -(-n // every))


@pytest.mark.parametrize("every", [2, 3, 4])
def test_cutting_vgg19s_buckets_evens_its_steps(every: int) -> None:
    def most(parts: list[int]) -> float:
        """Of the elements of a step, as a multiple of an equal share."""
        units = [n / cut for n, cut in zip(VGG19, parts, strict=True) for _ in range(cut)]
        return max(sum(units[step::every]) for step in range(every)) * every / sum(VGG19)

    assert most(shards(VGG19, every)) < 1.3 < 1.6 < most([1] * 6)


FIRST: Layout = [{"embed": (12, 40), "bias": (33,), "kernel": (8, 3, 3), "scale": (3,)}]
LATER: Layout = [{"scale": (3,), "kernel": (8, 3, 3)}, {"bias": (33,)}, {"embed": (12, 40)}]


def expected(
    size: int, layouts: list[Layout], every: Callable[[int], int], coefficients: list[float]
) -> list[tuple[np.ndarray, list[dict[str, np.ndarray]]]]:
    """By step: the mean of all buckets in a row, and every worker's residual, in float64."""
    residuals: list[dict[str, np.ndarray]] = [{} for _ in range(size)]
    results = []
    for step, layout in enumerate(layouts):
        known = step > 0 and sizes(layouts[step - 1]) == sizes(layout)
        units = []  # (bucket, first, end)
        for index, n in enumerate(sizes(layout)):
            parts = 1
            if known:
                parts = min(every(step), max(1, int(n / np.median(sizes(layout)))))
            bounds = [part * n // parts for part in range(parts + 1)]
            units += [(index, *pair) for pair in pairwise(bounds)]
        turn = [unit for t, unit in enumerate(units) if (t + step) % every(step) == 0]
        total = [np.zeros(n) for n in sizes(layout)]
        for rank in range(size):
            for index, of in enumerate(layout):
                g = flat(of, rank, step).double().numpy()
                old = [
                    residuals[rank].get(name, np.zeros(prod(shape))) for name, shape in of.items()
                ]
                g = g + coefficients[step] * np.concatenate(old)
                for which, first, end in turn:
                    if which == index:
                        total[index][first:end] += g[first:end] / size
                        g[first:end] = 0
                ends = np.cumsum([prod(shape) for shape in of.values()])[:-1]
                residuals[rank].update(zip(of, np.split(g, ends), strict=True))
        results.append((np.concatenate(total), [dict(one) for one in residuals]))
    return results


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_steps_are_those_of_float64_over_a_new_layout(size: int, changes: bool) -> None:
    """And over a new interval, and a coefficient that rises."""
    layouts = [FIRST, LATER, LATER, *[LATER] * 9, FIRST, FIRST, FIRST]

    def every(step: int) -> int:
        return 5 if changes and step >= 6 else 3

    coefficients = [min(1.0, 0.3 + 0.2 * (step // 2)) for step in range(len(layouts))]
    make = lambda: COVAP(init=0.3, ascend_range=0.2, ascend_steps=2)  # noqa: E731
    seen = train(size, layouts, lambda step: 1 / every(step), make, Residual)
    reference = expected(size, layouts, every, coefficients)
    for step, (mean, residuals) in enumerate(reference):
        for rank in range(size):
            ours = np.concatenate([one.reduced.mean for one in seen[rank][step]])
            np.testing.assert_allclose(ours, mean, rtol=0, atol=1e-4)
            for one, of in zip(seen[rank][step], layouts[step], strict=True):
                kept = np.concatenate([residuals[rank][name] for name in of])
                unsent = one.reduced.unsent
                unsent = torch.zeros(kept.size) if unsent is None else unsent
                np.testing.assert_allclose(unsent, kept, rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_without_feedback_the_mean_is_of_what_is_not_unsent(size: int) -> None:
    results = train(size, [LATER] * 6, lambda step: 0.4, COVAP, NoFeedback)
    for step in range(6):
        for outcomes in zip(*(worker[step] for worker in results), strict=True):
            sent = [
                one.grad if one.reduced.unsent is None else one.grad - one.reduced.unsent
                for one in outcomes
            ]
            for one in outcomes:
                mean = torch.stack(sent).mean(0)
                torch.testing.assert_close(one.reduced.mean, mean, rtol=0, atol=1e-5)
                assert one.contributed_bytes == 4 * int(mean.count_nonzero())
