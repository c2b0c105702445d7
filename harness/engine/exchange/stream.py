"""The CUDA stream that a lane works on; on the CPU nothing is to be done."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class Stream:
    """CUDA stream of one device, or nothing on the CPU; threads that enter it take turns."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Context in which this thread's kernels are launched on the stream."""
        if self._stream is None:
            yield
            return
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield

    def follow(self, event: Any, buffer: Tensor) -> None:
        """Make later work wait for `event` before it reads `buffer`; None: it is ready."""
        if event is not None:
            self._stream.wait_event(event)
            buffer.record_stream(self._stream)

    def adopt(self, value: Any) -> None:
        """Tell the allocator that the stream will read the tensors of `value`, made on another."""
        if self._stream is None:
            return
        if isinstance(value, Tensor):
            value.record_stream(self._stream)
        elif isinstance(value, Iterable):
            for part in value:
                self.adopt(part)

    def finish(self) -> None:
        """Wait until all that was launched is done."""
        if self._stream is not None:
            self._stream.synchronize()
