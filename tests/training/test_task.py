"""What a model is asked: losses of classes and of logits, labels that are none, and a judge."""

import pytest
import torch
from torch import nn

from harness.engine.training.task import Task, answers
from harness.workloads.data.base import UNLABELLED
from harness.workloads.data.clicks import Clicks

CPU = torch.device("cpu")


def scored(n: int, classes: int) -> torch.Tensor:
    return torch.randn(n, classes, generator=torch.Generator().manual_seed(0))


def test_a_single_score_is_the_logit_of_the_second_of_two_classes() -> None:
    """Loss, gradient and answers are those of two scores of which the first is 0."""
    task, labels = Task("accuracy", CPU), torch.tensor([0, 1, 1, 0, 1])
    one = scored(5, 1).requires_grad_()
    two = torch.cat([torch.zeros(5, 1), one], dim=1)
    for reduction in ("mean", "sum"):
        losses = task.loss(one, labels, reduction), task.loss(two, labels, reduction)
        assert losses[0].item() == pytest.approx(losses[1].item())
        gradients = [torch.autograd.grad(loss, one, retain_graph=True)[0] for loss in losses]
        assert torch.allclose(*gradients)
    assert torch.equal(answers(one), answers(two))
    sums = task.tested(nn.Identity(), [(one.detach(), labels)])
    assert torch.allclose(sums, task.tested(nn.Identity(), [(two.detach(), labels)]))
    assert task.metrics(sums)["accuracy"] == (answers(one) == labels).double().mean()


def test_where_a_sentence_has_ended_nothing_is_asked() -> None:
    task, scores = Task("bleu", CPU, label_smoothing=0.1), scored(6, 5)
    labels = torch.tensor([[0, 4, UNLABELLED], [2, UNLABELLED, UNLABELLED]])
    real = labels.flatten() != UNLABELLED
    for reduction in ("mean", "sum"):
        found = task.loss(scores.view(2, 3, 5), labels, reduction)
        expected = task.loss(scores[real], labels.flatten()[real], reduction)
        assert found.item() == pytest.approx(expected.item())
    sums = task.tested(nn.Identity(), [(scores.view(2, 3, 5), labels)])
    assert sums[2] == 3 and sums[0] <= 3


def test_smoothing_gives_a_share_of_every_label_to_all_classes() -> None:
    scores, labels = scored(4, 3), torch.tensor([0, 1, 2, 0])
    logs = scores.log_softmax(1)
    expected = -(0.7 * logs[range(4), labels] + 0.3 * logs.mean(1)).mean()
    assert Task("accuracy", CPU, label_smoothing=0.3).loss(scores, labels) == pytest.approx(
        expected
    )


class Counts:
    """Judges by how many samples there were, and the largest number they hold."""

    size = 2

    def sums(self, model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.tensor([len(inputs), float(labels.max())], dtype=torch.float64)

    def quality(self, sums: torch.Tensor) -> float:
        return float(sums[1] / sums[0])


def test_what_a_judge_counts_is_added_up_and_reported_in_place_of_the_accuracy() -> None:
    task, labels = Task("marks", CPU, judge=Counts()), torch.tensor([0, 2, 1])
    sums = task.tested(nn.Identity(), [(scored(3, 3), labels)] * 2)
    assert sums.tolist()[2:] == [6, 6, 4]
    metrics = task.metrics(sums)
    assert metrics["marks"] == pytest.approx(4 / 6) and metrics["loss"] > 0


def test_a_data_set_that_says_nothing_is_asked_for_classes() -> None:
    task = Task.of(Clicks(), CPU, "bf16")
    assert task == Task("accuracy", CPU, "bf16") and task.judge is None
