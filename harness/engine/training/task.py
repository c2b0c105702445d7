"""What a model is asked on a batch: scores, their loss, how good they are; and what it carries on.

A sample has one label, or a label at each word of a text: scores are [n, ..., classes] and labels
[n, ...], and losses are means over labels, of which UNLABELLED are none. A single score, [n, 1],
is a logit: yes or no.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from harness.workloads.data.base import UNLABELLED, Batch, DataSet
from harness.workloads.models.base import State

COUNTED = 3  # right answers, loss, labels


@dataclass
class RecurrentState:
    """The state of a recurrent model from one batch to the next, by number of the micro-batch.

    Forgotten every `period` batches, where the text begins again. Other models leave it empty.
    """

    period: int | None = None  # None: never
    done: int = 0  # batches that were before
    states: dict[int, State] = field(default_factory=dict)

    def begin(self) -> None:
        """Before every batch."""
        if self.period is not None and self.done % self.period == 0:
            self.states = {}
        self.done += 1


class Judge(Protocol):
    """Scores a model where its outputs alone do not suffice, by sums over samples."""

    size: int  # of the sums

    def sums(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        """Sums over a batch, float64 [size], to be added to those of other batches."""
        ...

    def quality(self, sums: Tensor) -> float: ...


@dataclass(frozen=True)
class Task:
    """Classification of samples, or of the word that follows each word: `metric` says which."""

    metric: str  # accuracy | perplexity, or what a judge measures
    device: torch.device
    precision: str = "float32"  # float32 | bf16: of the forward pass
    label_smoothing: float = 0.0  # share of a label that all classes have, in [0, 1)
    judge: Judge | None = None

    @classmethod
    def of(cls, data: DataSet, device: torch.device, precision: str) -> "Task":
        """Build the task of a data set, with its label smoothing and its judge, if it has them."""
        smoothing, judge = getattr(data, "label_smoothing", 0.0), getattr(data, "judge", None)
        return cls(data.metric, device, precision, smoothing, judge)

    def scores(
        self, model: nn.Module, inputs: Tensor, memory: RecurrentState | None = None, part: int = 0
    ) -> Tensor:
        """A model that returns its state beside the scores is handed it with the next batch."""
        inputs = inputs.to(self.device)
        state = memory.states.get(part) if memory else None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            found: Any = model(inputs) if state is None else model(inputs, state)
        scores, state = found if isinstance(found, tuple) else (found, None)
        if memory and state is not None:
            memory.states[part] = tuple(each.detach() for each in state)
        return scores.float()

    def loss(self, scores: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        labels = labels.to(self.device).flatten()
        if scores.shape[-1] == 1:
            wanted = labels.float()
            return binary_cross_entropy_with_logits(scores.flatten(), wanted, reduction=reduction)
        flat, smoothing = scores.flatten(0, -2), self.label_smoothing
        return cross_entropy(flat, labels, reduction=reduction, label_smoothing=smoothing)

    def tested(self, model: nn.Module, batches: Iterable[Batch]) -> Tensor:
        """Over `batches`: right answers, loss, labels, and what a judge counts.

        float64 [3 + its size], to be added to those of others.
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
        """Metrics of an evaluation from the sums that `tested` returned, scores included."""
        accuracy, loss = (sums[:2] / sums[2]).cpu()
        if self.judge:
            judged = {self.metric: self.judge.quality(sums[COUNTED:].cpu())}
            return judged | {"accuracy": accuracy.item(), "loss": loss.item()}
        quality = loss.exp() if self.metric == "perplexity" else accuracy
        return {self.metric: quality.item(), "loss": loss.item()}


def answers(scores: Tensor) -> Tensor:
    """The class with the highest of `scores`, [..., classes]; of one score whether it is > 0."""
    return scores.argmax(-1) if scores.shape[-1] > 1 else (scores[..., 0] > 0).long()
