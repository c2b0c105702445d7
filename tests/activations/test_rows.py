"""The row mask against a sort, and its edges: zeros, ties, NaN, the ends of its range."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compressors.activations.rows import check_density, entries, row_mask, spread

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
