"""The norm of the mean gradient of a model whose stages are on several ranks."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.clock import RankClock
from harness.engine.pipeline.channel import Channel

BYTES = 4  # of a norm


@dataclass
class GradientNorm:
    """One stage's part in the norm: parameters' norms travel forward, and the total back.

    So it is rounded as in a model of one process. Counters only grow.
    """

    before: Channel | None  # to the stage before; None: this is the first
    after: Channel | None
    parameters_before: int  # of all stages before
    clock: RankClock
    waited_s: float = field(default=0.0, init=False)  # real

    def of(self, gradients: Iterable[Tensor]) -> Tensor:
        """Return the norm, float32 [], of the whole model's gradient. All stages call it."""
        begin = self.clock.now()
        norms = torch.stack([torch.linalg.vector_norm(each) for each in gradients])
        if self.before:
            norms = torch.cat([_received(self.before, self.parameters_before), norms])
        if self.after:
            self.after.send(norms.view(torch.uint8))
            norm = _received(self.after, 1)
        else:
            norm = torch.linalg.vector_norm(norms)[None]
        if self.before:
            self.before.send(norm.view(torch.uint8))
        for channel in self._channels():
            channel.flush()
        self.waited_s += self.clock.now() - begin
        return norm[0]

    @property
    def sent_bytes(self) -> int:
        return sum(channel.sent_bytes for channel in self._channels())

    @property
    def received_bytes(self) -> int:
        return sum(channel.received_bytes for channel in self._channels())

    def _channels(self) -> list[Channel]:
        return [each for each in (self.before, self.after) if each]


def _received(channel: Channel, count: int) -> Tensor:
    return channel.receive(BYTES * count).view(torch.float32)
