"""Error feedback: nothing is lost, also when DDP lays out its buckets anew."""

import pytest
import torch

from harness.engine.exchange.feedback import NoFeedback, Residual


def test_residual_adds_what_was_not_sent():
    residual = Residual()
    grad = torch.tensor([1.0, -2.0, 3.0])
    assert residual.recall(("w",), [3], grad).add_(grad).tolist() == [1, -2, 3]
    residual.keep(("w",), torch.tensor([1.0, 0.0, 0.0]))
    assert residual.recall(("w",), [3], grad).add_(grad).tolist() == [2, -2, 3]
    residual.keep(("w",), None)
    assert residual.recall(("w",), [3], grad).add_(grad).tolist() == grad.tolist()
    assert grad.tolist() == [1, -2, 3]


def test_residual_follows_parameters_through_a_new_bucket_layout():
    residual = Residual()
    residual.recall(("a", "b", "c"), [2, 1, 2], torch.zeros(5))
    residual.keep(("a", "b", "c"), torch.arange(1.0, 6.0))
    moved = residual.recall(("c", "a"), [2, 2], torch.zeros(4))
    assert moved.tolist() == [4, 5, 1, 2]
    left = residual.recall(("b",), [1], torch.zeros(1))
    assert left.tolist() == [3]
    kept = {name: part.tolist() for name, part in residual.by_parameter().items()}
    assert kept == {"c": [4, 5], "a": [1, 2], "b": [3]}


def test_without_feedback_the_gradient_passes_as_it_is():
    grad = torch.randn(4)
    assert NoFeedback().recall(("w",), [4], grad) is None
    NoFeedback().keep(("w",), torch.ones(4))
    assert NoFeedback().recall(("w",), [4], grad) is None


def test_decay_fades_what_waits():
    """Nothing of gradients of 4 is ever sent: what is added is the sum of decay^age 4."""
    residual = Residual(0.5)
    for expected in (0.0, 2.0, 3.0, 3.5):
        added = residual.recall(("w",), [1], torch.zeros(1))
        assert added.item() == expected
        residual.keep(("w",), added + 4)


def test_decay_counts_once_at_a_new_bucket_layout():
    residual = Residual(0.5)
    residual.recall(("a", "b"), [1, 1], torch.zeros(2))
    residual.keep(("a", "b"), torch.tensor([8.0, 16.0]))
    assert residual.recall(("b",), [1], torch.zeros(1)).tolist() == [8]
    assert residual.recall(("a",), [1], torch.zeros(1)).tolist() == [4]


def test_without_decay_the_residual_is_what_was_kept_to_the_bit():
    kept = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    residual = Residual()
    residual.recall(("w",), [1000], kept)
    residual.keep(("w",), kept)
    assert torch.equal(residual.recall(("w",), [1000], kept), kept)


@pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan")])
def test_a_decay_that_cannot_be_is_refused(decay):
    with pytest.raises(ValueError, match=r"residual_decay must be in \[0, 1\]"):
        Residual(decay)
