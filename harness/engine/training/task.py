"""The learning task: scores of a model on a batch, loss, metrics, and recurrent state.

A sample has one label, or one label per word of a text. Scores are [n, ..., classes] and labels
[n, ...]. Losses are means over all labels except UNLABELLED. A single score, [n, 1], is a logit of
a yes-or-no question.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from harness.workloads.data.base import UNLABELLED, Batch, DataSet
from harness.workloads.models.base import State

COUNTED = 3  # sums of every task: right answers, loss, labels


@dataclass
class RecurrentState:
    """State that a recurrent model carries from batch to batch, by number of the micro-batch.

    It is cleared every `period` batches, when the text starts again. Other models leave it empty.
    """

    period: int | None = None  # batches between resets; None means never
    done: int = 0  # batches so far
    states: dict[int, State] = field(default_factory=dict)

    def begin(self) -> None:
        """Start a batch. Clear the state if the text starts again."""
        if self.period is not None and self.done % self.period == 0:
            self.states = {}
        self.done += 1


class Judge(Protocol):
    """Metric that needs more than a model's outputs, computed from sums over samples."""

    size: int  # number of sums

    def sums(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the sums of one batch, float64 [size]. They are added up over batches."""
        ...

    def quality(self, sums: Tensor) -> float: ...


@dataclass(frozen=True)
class Task:
    """Loss and metrics of a classification task: a label per sample, or per word of a text.

    The shape of the scores decides the loss. It is binary cross-entropy for one score per sample,
    else cross-entropy. `metric` decides the quality: accuracy, perplexity, or the judge's metric.
    """

    metric: str  # accuracy | perplexity, or the judge's metric
    device: torch.device
    precision: str = "float32"  # float32 | bf16: of the forward pass
    label_smoothing: float = 0.0  # share of a label spread over all classes, in [0, 1)
    judge: Judge | None = None

    @classmethod
    def of(cls, data: DataSet, device: torch.device, precision: str) -> "Task":
        """Return the task of a data set, with its label smoothing and judge if it has them."""
        smoothing, judge = getattr(data, "label_smoothing", 0.0), getattr(data, "judge", None)
        return cls(data.metric, device, precision, smoothing, judge)

    def scores(
        self, model: nn.Module, inputs: Tensor, memory: RecurrentState | None = None, part: int = 0
    ) -> Tensor:
        """Return the model's scores of `inputs`, float32 [..., classes].

        With `memory`, a recurrent model starts from the state of micro-batch `part`. Its new state,
        detached, is kept there.
        """
        inputs = inputs.to(self.device)
        state = memory.states.get(part) if memory else None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            found: Any = model(inputs) if state is None else model(inputs, state)
        scores, state = found if isinstance(found, tuple) else (found, None)
        if memory and state is not None:
            memory.states[part] = tuple(each.detach() for each in state)
        return scores.float()

    def loss(self, scores: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """Return the loss of `scores`, [..., classes], for `labels`, [...], as a scalar.

        With one class it is binary cross-entropy. `reduction` is "mean" or "sum".
        """
        labels = labels.to(self.device).flatten()
        if scores.shape[-1] == 1:
            wanted = labels.float()
            return binary_cross_entropy_with_logits(scores.flatten(), wanted, reduction=reduction)
        flat, smoothing = scores.flatten(0, -2), self.label_smoothing
        return cross_entropy(flat, labels, reduction=reduction, label_smoothing=smoothing)

    def tested(self, model: nn.Module, batches: Iterable[Batch]) -> Tensor:
        """Evaluate `model` on `batches` of inputs and labels. Return float64 [3 + judge.size].

        It has sums of right answers, losses and labels, then those of the judge. A caller adds up
        the sums of all ranks. The model's mode is not changed.
        """
        judged = self.judge.size if self.judge else 0
        sums = torch.zeros(COUNTED + judged, dtype=torch.float64, device=self.device)
        memory = RecurrentState()
        for inputs, labels in batches:
            scores, wanted = self.scores(model, inputs, memory), labels.to(self.device)
            sums[0] += (answers(scores) == wanted).sum()
            sums[1] += self.loss(scores, labels, "sum")
            sums[2] += (wanted != UNLABELLED).sum()
            if self.judge:
                judgement = self.judge.sums(model, inputs.to(self.device), labels)
                sums[COUNTED:] += judgement.to(self.device)
        return sums

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics of an evaluation from the sums that `tested` returned."""
        accuracy, loss = (sums[:2] / sums[2]).cpu()
        if self.judge:
            judged = {self.metric: self.judge.quality(sums[COUNTED:].cpu())}
            return judged | {"accuracy": accuracy.item(), "loss": loss.item()}
        quality = loss.exp() if self.metric == "perplexity" else accuracy
        return {self.metric: quality.item(), "loss": loss.item()}


def answers(scores: Tensor) -> Tensor:
    """Return the predicted classes of `scores`, [..., classes]. A single score means score > 0."""
    return scores.argmax(-1) if scores.shape[-1] > 1 else (scores[..., 0] > 0).long()
