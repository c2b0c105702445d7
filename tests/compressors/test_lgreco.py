"""L-GreCo: its knapsack against all choices, its error bound, what it sends at any density."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
    uniform = (0,) * len(of)
    best = min(cost(of, each, "sizes") for each in [uniform, *fits])
    chosen = least_sizes(of, alpha, bins)
    assert cost(of, tuple(chosen), "sizes") == best
    assert cost(of, tuple(chosen), "errors") <= allowed * (1 + 1e-12)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.floats(0.001, 1.0), st.sampled_from([0.25, 0.5, 1.0]),
       st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1.0, 1.2]))  # fmt: skip
def test_a_choice_is_never_larger_than_the_uniform_one(seed, density, lowest, highest, alpha):
    source = torch.Generator().manual_seed(seed)
    powers = torch.randint(1, 6, (6,), generator=source).tolist()
    sizes = torch.logspace(0, 3, 40)[torch.randint(0, 40, (6,), generator=source)].int().tolist()
    grads = [torch.randn(n, generator=source) ** p for n, p in zip(sizes, powers, strict=True)]
    maker = LGreCo(lowest=lowest, highest=highest, alpha=alpha)
    of = [maker._layer(grad, density) for grad in grads]
    chosen, uniform = least_sizes(of, alpha, 1000), (0,) * 6
    assert cost(of, tuple(chosen), "sizes") <= cost(of, uniform, "sizes")
    allowed = alpha * cost(of, uniform, "errors")
    assert cost(of, tuple(chosen), "errors") <= allowed * (1 + 1e-12) + 1e-300


def test_a_choice_whose_error_is_no_multiple_of_what_is_allowed_is_not_taken():
    """Bins of the cost are infinite here, which no integer is."""
    errors = torch.tensor([1e-310, 1e9, 0.0], dtype=torch.float64)
    layer = Layer(torch.tensor([3.0, 1.0, 2.0]), errors)
    assert least_sizes([layer], 1.0, 1000) == [2]


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


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=6))
def test_no_exchange_sends_more_than_the_uniform_choice_whatever_density_is_asked(densities):
    """At another density large multiples of small layers grow, and small ones cannot shrink."""
    shapes = {f"layer{n}": (n,) for n in (3, 40, 41, 7, 500)}
    powers = {"layer40": 9, "layer500": 7}

    def work(workers: ThreadWorkers) -> list[int]:
        replica = Replica(workers, LGreCo(period=3, lowest=0.25, highest=4.0))
        parts = [gradient(*of, 7) ** powers.get(name, 1) for name, of in shapes.items()]
        return [replica.reduce(torch.cat(parts), density, step, of=shapes).contributed_bytes
                for step, density in enumerate(densities)]  # fmt: skip

    uniform = [8 * sum(max(1, int(d * n)) for (n,) in shapes.values()) for d in densities]
    assert all(a <= b for a, b in zip(together(1, work)[0], uniform, strict=True))


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
