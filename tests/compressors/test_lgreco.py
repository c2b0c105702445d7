"""L-GreCo: its knapsack against all choices, its error bound, what it sends at any density."""

from itertools import product

import pytest
import torch

from compressors.lgreco import Layer, LGreCo, least_sizes
from compressors.topk import TopK
from harness.engine.exchange.feedback import Residual
from tests.compressors.reductions import Outcome, Replica, gradient
from tests.compressors.threads import ThreadWorkers, together

SHAPES = {"flat": (100, 100), "steep": (100, 100), "bias": (50,)}
N = 20_050


def layers(seed: int, count: int = 5, choices: int = 4) -> list[Layer]:
    source = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        sizes = torch.randint(1, 100, (choices,), generator=source).double()
        errors = 10 * torch.rand(choices, generator=source, dtype=torch.float64)
        found.append(Layer(sizes, errors))
    return found


def cost(layers_: list[Layer], chosen: tuple[int, ...], what: str) -> float:
    return sum(float(getattr(one, what)[at]) for one, at in zip(layers_, chosen, strict=True))


@pytest.mark.parametrize("alpha", [1.0, 1.3])
@pytest.mark.parametrize("seed", range(8))
def test_the_choice_is_the_best_of_all(seed: int, alpha: float) -> None:
    """Of those whose errors, rounded up to a bin, are allowed."""
    bins, of = 1000, layers(seed)
    allowed = alpha * cost(of, (0,) * len(of), "errors")
    rounded = [Layer(one.sizes, (one.errors / allowed * bins).ceil()) for one in of]
    fits = [each for each in product(range(4), repeat=len(of))
            if cost(rounded, each, "errors") <= bins]  # fmt: skip
    best = min((cost(of, each, "sizes") for each in fits), default=None)
    chosen = least_sizes(of, alpha, bins)
    if best is None:
        assert chosen == [0] * len(of)
    else:
        assert cost(of, tuple(chosen), "sizes") == best
    assert cost(of, tuple(chosen), "errors") <= allowed * (1 + 1e-12)


@pytest.mark.parametrize("errors", [0.0, float("nan"), float("inf")])
def test_where_errors_tell_nothing_the_choice_is_uniform(errors: float) -> None:
    of = [Layer(torch.tensor([2.0, 1.0]), torch.full((2,), errors).double())] * 2
    assert least_sizes(of, 1.0, 100) == [0, 0]


def gradients(step: int) -> torch.Tensor:
    """A layer of equal magnitudes, one of which few entries are nearly all, and a bias."""
    steep = gradient(10_000, step) ** 3
    return torch.cat([gradient(10_000, step + 1).sign(), steep, gradient(50, step + 2)])


def sent(make, densities: list[float], feedback: bool = False) -> list[Outcome]:
    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica = Replica(workers, make(), Residual()) if feedback else Replica(workers, make())
        return [replica.reduce(gradients(7), density, step, of=SHAPES)
                for step, density in enumerate(densities)]  # fmt: skip

    return together(1, work)[0]


def error(outcome: Outcome) -> float:
    return float(outcome.reduced.unsent.double().square().sum())


@pytest.mark.parametrize("density", [0.01, 0.1])
def test_it_sends_less_at_no_more_error_than_the_uniform_choice(density: float) -> None:
    first, second = sent(LGreCo, [density] * 2)
    assert first.contributed_bytes == 8 * sum(
        max(1, int(density * n)) for n in (10_000, 10_000, 50)
    )  # uniform
    assert second.contributed_bytes < 0.95 * first.contributed_bytes
    assert error(second) <= error(first) * (1 + 1e-9)


def test_the_multiples_hold_at_any_density_until_they_are_chosen_anew() -> None:
    densities = [0.1, 0.1, 0.05, 0.02, 0.4, 0.4]
    outcomes = sent(lambda: LGreCo(period=4), densities)
    ratios = [outcome.contributed_bytes / 8 / (density * N)
              for outcome, density in zip(outcomes, densities, strict=True)]  # fmt: skip
    assert ratios[2] == pytest.approx(ratios[1], rel=0.02)
    assert ratios[4] == pytest.approx(ratios[1], rel=0.03)  # measured in this one
    assert ratios[5] != ratios[4]


def test_multiples_of_one_alone_are_top_k_of_every_layer() -> None:
    ours = sent(lambda: LGreCo(lowest=1.0, highest=1.0, period=1), [0.1] * 3, feedback=True)

    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica, found = Replica(workers, TopK(), Residual()), []
        for step in range(3):
            parts = zip(SHAPES, gradients(7).split([10_000, 10_000, 50]), strict=True)
            found.append([replica.reduce(part, 0.1, step, of={name: SHAPES[name]})
                          for name, part in parts])  # fmt: skip
        return found

    for one, each in zip(ours, together(1, work)[0], strict=True):
        assert torch.equal(one.reduced.mean, torch.cat([part.reduced.mean for part in each]))


def test_layers_are_chosen_over_all_buckets() -> None:
    """As if they were in one."""

    def multiples(layout: list[list[str]]) -> dict[str, float]:
        def work(workers: ThreadWorkers) -> dict[str, float]:
            replica = Replica(workers, LGreCo())
            parts = dict(zip(SHAPES, gradients(7).split([10_000, 10_000, 50]), strict=True))
            for step in range(2):
                for index, names in enumerate(layout):
                    grad = torch.cat([parts[name] for name in names])
                    replica.reduce(grad, 0.1, step, index, {name: SHAPES[name] for name in names})
            return replica.compressor.multiples

        return together(1, work)[0]

    assert multiples([list(SHAPES)]) == multiples([["flat"], ["steep", "bias"]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"period": 0}, "period must be >= 1, got 0"),
        ({"alpha": 0.5}, "alpha must be >= 1, got 0.5"),
        ({"lowest": 0.0}, r"lowest must be in \(0, 1\], got 0.0"),
        ({"highest": 0.5}, "highest must be >= 1, got 0.5"),
        ({"choices": 1}, "choices must be >= 2, got 1"),
        ({"bins": 10}, "bins must be >= 100, got 10"),
    ],
)
def test_what_is_out_of_range_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LGreCo(**changes)
