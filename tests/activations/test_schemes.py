"""Masks, fits, sketches and error feedback of gradients, each against its formula, and bytes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compressors.activations.base import Piece
from compressors.activations.dct_mp import DCTMP
from compressors.activations.encoding import decode, encode, values_bytes
from compressors.activations.rows import check_density, entries, row_mask, spread
from compressors.activations.sketch import GaussianSketch
from compressors.activations.topk_grad import TopKGrad
from tests.activations.schemes import rectified


def laplace(rows: int, d: int, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.distributions.Laplace(0.1, 0.5).sample((rows, d))


@pytest.mark.parametrize("density", [0.05, 0.1, 0.25])
def test_a_fit_of_what_is_laplace_keeps_the_density(density: float) -> None:
    mask = DCTMP(density, "laplace").mask(laplace(400, 256), True)
    assert float(mask.float().mean()) == pytest.approx(density, rel=0.05)


def test_evaluation_uses_the_average_of_the_thresholds_of_training() -> None:
    scheme = DCTMP(0.25, "laplace", memory=0.5)
    thresholds = []
    for seed in range(4):
        x = laplace(50, 64, seed) * (seed + 1)
        fresh = DCTMP(0.25, "laplace")
        scheme.mask(x, True), fresh.mask(x, True)
        thresholds.append(fresh.average)
    average = thresholds[0]
    for tau in thresholds[1:]:
        average = 0.5 * average + 0.5 * tau
    assert scheme.average == pytest.approx(average)
    x = laplace(50, 64, 9)
    assert torch.equal(scheme.mask(x, False), x.abs() >= average)
    assert scheme.average == pytest.approx(average)  # evaluation teaches nothing
    untrained = DCTMP(0.25, "laplace")
    assert torch.equal(untrained.mask(x, False), untrained.mask(x, True))


def test_a_sketch_is_unbiased_and_its_backward_its_derivative() -> None:
    """Over the draws of one scheme."""
    x, scheme = laplace(3, 20), GaussianSketch(0.5, 1)
    mean = sum(_through(scheme, x) for _ in range(600)) / 600
    assert torch.allclose(mean, x, atol=0.25)
    piece, kept = scheme.forward(torch.eye(20), True)
    jacobian, _ = scheme.received(piece, (20, 20), True)
    g = laplace(3, 20, 5)
    back = scheme.returned(scheme.backward(g, None), kept, (3, 20))
    assert torch.allclose(back, g @ jacobian.T, atol=1e-5)


def _through(scheme: GaussianSketch, x: torch.Tensor, training: bool = True) -> torch.Tensor:
    piece, _ = scheme.forward(x, training)
    return scheme.received(piece, (x.shape[0], x.shape[1]), training)[0]


def test_a_fresh_sketch_is_another_for_every_batch_and_evaluations_change_none_of_training():
    x = torch.eye(20)
    often, never = GaussianSketch(0.5, 1), GaussianSketch(0.5, 1)
    trained, evaluated = [], []
    for number in range(3):
        trained.append(_through(often, x))
        assert torch.equal(trained[-1], _through(never, x))
        evaluated += [_through(often, x, training=False) for _ in range(number)]
    different = [*trained, *evaluated]
    assert len({tuple(each.flatten().tolist()) for each in different}) == len(different) == 6
    assert torch.equal(_through(never, x, training=False), evaluated[1])


def test_a_sketch_that_is_drawn_once_is_the_same_for_all() -> None:
    x, once = torch.eye(20), GaussianSketch(0.5, 1, fresh=False)
    first = _through(once, x)
    assert torch.equal(first, _through(once, x)) and torch.equal(first, _through(once, x, False))
    assert not torch.equal(first, _through(GaussianSketch(0.5, 2, fresh=False), x))


@pytest.mark.parametrize("feedback", [True, False])
def test_what_a_gradient_leaves_is_added_to_the_next(feedback: bool) -> None:
    scheme, error = TopKGrad(0.3, feedback), torch.zeros(4, 20)
    for seed in range(5):
        grad = torch.randn(4, 20, generator=torch.Generator().manual_seed(seed))
        total = grad + error
        piece = scheme.backward(grad, None)
        sent = scheme.returned(piece, None, (4, 20))
        kept = total.abs() >= total.abs().sort(1).values[:, 14:15]
        assert torch.equal(sent, total * kept) and kept.sum(1).tolist() == [6] * 4
        if feedback:
            error = total - sent
    other = scheme.backward(rectified(2, 20, 1), None)  # a shorter micro-batch: rows do not match
    assert other.mask is not None and other.mask.shape == (2, 20)


DENSITIES = [0.02, 0.05, 0.1, 0.25, 0.71, 1.0]


def by_sorting(rows: torch.Tensor, density: float) -> np.ndarray:
    """The paper's mask, in the words of its Algorithm 2."""
    found = []
    for row in rows.double().abs().numpy():
        eta_d = round((1 - density) * row.size, 9)
        tau = np.sort(row)[min(int(eta_d), row.size - 1)]
        found.append((row >= tau) & (row > 0))
    return np.array(found)


@pytest.mark.parametrize("density", DENSITIES)
@settings(deadline=None, max_examples=60)
@given(
    data=arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.integers(1, 40)),
        elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-42, 3e38, float("inf")]),
    )
)
def test_the_mask_is_the_papers(data: np.ndarray, density: float) -> None:
    rows = torch.from_numpy(data)
    np.testing.assert_array_equal(row_mask(rows, density).numpy(), by_sorting(rows, density))


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("d", [1, 7, 100, 256])
def test_of_distinct_entries_the_promised_number_is_kept(density: float, d: int) -> None:
    rows = torch.randperm(6 * d, generator=torch.Generator().manual_seed(1)).view(6, d) + 1.0
    rows[::2] *= -1
    promised = max(1, d - int(round((1 - density) * d, 9)))
    assert row_mask(rows, density).sum(1).tolist() == [promised] * 6


def test_zeros_never_cross_and_nan_always_does() -> None:
    rows = torch.tensor([[0.0, 3.0, 0.0, 0.0], [1.0, float("nan"), 5.0, 2.0]])
    assert row_mask(rows, 1.0).tolist() == [[False, True, False, False], [True] * 4]
    assert row_mask(rows, 0.5).tolist() == [[False, True, False, False], [False, True, True, False]]
    assert row_mask(rows, 0.25).tolist()[1] == [False, True, False, False]


def test_entries_and_spread_undo_each_other_where_the_mask_is_set() -> None:
    rows = torch.randn(9, 33, generator=torch.Generator().manual_seed(2))
    mask = row_mask(rows, 0.3)
    assert torch.equal(entries(rows, mask), rows[mask])
    assert torch.equal(spread(entries(rows, mask), mask), torch.where(mask, rows, 0.0))


@pytest.mark.parametrize("density", [0, -0.1, 1.01, float("nan"), True, "half"])
def test_a_density_out_of_range_is_refused(density: object) -> None:
    with pytest.raises(ValueError, match=r"density must be a number in \(0, 1\], got"):
        check_density(density)  # type: ignore[arg-type]


SHAPES = [(1, 1), (3, 5), (4, 64), (16, 16), (7, 200), (32, 256), (300, 256)]
SHARES = [0.0, 0.01, 0.1, 0.5, 1.0]


def piece(shape: tuple[int, int], share: float) -> Piece:
    source = torch.Generator().manual_seed(shape[0])
    rows = torch.randn(shape, generator=source)
    mask = torch.rand(shape, generator=source) < share
    return Piece(entries(rows, mask), mask)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", SHARES)
def test_what_is_sent_arrives(shape: tuple[int, int], share: float) -> None:
    sent = piece(shape, share)
    bits, *rest = encode(sent)
    values = torch.cat([torch.empty(0, dtype=torch.uint8), *rest])
    got = decode(bits, values, shape)
    assert sent.mask is not None and got.mask is not None
    assert torch.equal(got.mask, sent.mask) and torch.equal(got.values, sent.values)
    n, k = shape[0] * shape[1], int(sent.mask.sum())
    assert bits.numel() == -(-n // 8)
    assert values.numel() == values_bytes(bits, n) == 4 * k


def test_without_a_mask_there_are_values_alone() -> None:
    [message] = encode(Piece(torch.arange(5.0)))
    assert torch.equal(message.view(torch.float32), torch.arange(5.0))
