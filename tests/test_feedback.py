"""Error feedback: nothing is lost, also when DDP lays out its buckets anew."""

import torch

from harness.feedback import Forget, Residual


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
    assert Forget().recall(("w",), [4], grad) is None
    Forget().keep(("w",), torch.ones(4))
    assert Forget().recall(("w",), [4], grad) is None
