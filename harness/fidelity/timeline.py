"""One iteration on a time line: computation, compression, a network that serves in order.

As the five papers draw it (COVAP, figure 1 and equation 3; ACP-SGD, figures 1 and 4): units become
ready one after the other in backward, are compressed on the device that computes, and wait for the
network in their order. Where a method may overlap decides what hides what.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Overlap = Literal["overlapped", "blocking", "after_backward"]


class Unit(NamedTuple):
    """What is exchanged at once; `backward_s` is the computation since the unit before."""

    backward_s: float
    compress_s: float
    comm_s: float


class Iteration(NamedTuple):
    """How long one takes, and what of; `exposed_s` is communication that nothing hid."""

    total_s: float
    compute_s: float
    compress_s: float
    comm_s: float

    @property
    def exposed_s(self) -> float:
        return self.total_s - self.compute_s - self.compress_s


def iteration(
    forward_s: float, units: Sequence[Unit], overlap: Overlap, decompress_s: float = 0.0
) -> Iteration:
    """Sent while backward goes on, or while it waits (`blocking`), or `after_backward`."""
    backward_s = sum(unit.backward_s for unit in units)
    compress_s = sum(unit.compress_s for unit in units)
    comm_s = sum(unit.comm_s for unit in units)
    if overlap == "overlapped":
        end_s = _overlapped(forward_s, units)
    else:  # nothing hides anything, in whichever order
        end_s = forward_s + backward_s + compress_s + comm_s
    compute_s = forward_s + backward_s
    return Iteration(end_s + decompress_s, compute_s, compress_s + decompress_s, comm_s)


def _overlapped(forward_s: float, units: Sequence[Unit]) -> float:
    """Equation 3 of COVAP: a unit is sent when it is ready and the one before has gone."""
    device_s, network_s = forward_s, 0.0
    for unit in units:
        device_s += unit.backward_s + unit.compress_s
        network_s = max(network_s, device_s) + unit.comm_s
    return max(device_s, network_s)
