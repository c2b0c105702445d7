"""tbf as a link's shaper: what most users of tc write; its wire format.

Unlike HTB it cuts a packet that is longer than its burst into single ones, at the processor's cost,
and fills its bucket at every change of the rate: `refill_share` says how much that lets pass. The
burst is told in bytes, and so the same at every rate; one that shrank below a packet which waits
already would hold it for ever.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from harness.emulation.batch import attribute, attributes
from harness.emulation.packets import FRAME_BYTES, SEGMENT_BYTES

KIND = "tbf"
LEAST_BURST_BYTES, MOST_BURST_BYTES = FRAME_BYTES, 1 << 28
HELD_S = 60.0  # of the lowest rate, that a burst may be: the kernel tells it as 32 bits of 64 ns
# tc_tbf_qopt: rate and peak rate, each as cell log, link layer, overhead, alignment, least size,
# rate; then limit, burst in ticks, and that of the peak
_PARAMETERS = struct.Struct("=BBHhHI BBHhHI III")
_ETHERNET = 1
_TICK_S = 64e-9
_LARGEST = 2**32 - 1
_PARMS, _RATE64, _BURST = 1, 4, 6  # TCA_TBF_...


class TokenBucketShape(NamedTuple):
    """Parameters that a tbf holds, or is to hold."""

    rate_mbit: float  # real
    burst_bytes: int
    limit_bytes: int  # of packets that wait


@dataclass(frozen=True)
class TokenBucket:
    """One direction's tbf, all but its rate."""

    burst_bytes: int
    limit_bytes: int
    kind: ClassVar[str] = KIND
    title: ClassVar[str] = "tbf"

    def intended(self, rate: int) -> TokenBucketShape:
        """Return the parameters it is to hold at `rate` bytes/s."""
        return TokenBucketShape(rate / 125_000, self.burst_bytes, self.limit_bytes)

    def options(self, rate: int) -> bytes:
        """The kernel's options for `rate` bytes/s."""
        spec = (0, _ETHERNET, 0, 0, 0, min(rate, _LARGEST))
        ticks = min(_LARGEST, round(self.burst_bytes / rate / _TICK_S))
        no_peak = (0, 0, 0, 0, 0, 0)
        parameters = _PARAMETERS.pack(*spec, *no_peak, self.limit_bytes, ticks, 0)
        told = attribute(_PARMS, parameters) + attribute(
            _BURST, struct.pack("=I", self.burst_bytes)
        )
        if rate > _LARGEST:
            told += attribute(_RATE64, struct.pack("=Q", rate))
        return told

    def held(self, options: bytes) -> TokenBucketShape:
        """Read the parameters from the kernel's options; its burst is exact to two ticks."""
        found = attributes(options)
        told = _PARAMETERS.unpack_from(found[_PARMS])
        rate, limit, ticks = told[5], told[12], told[13]
        if _RATE64 in found:
            rate = struct.unpack("=Q", found[_RATE64])[0]
        burst = ticks * _TICK_S * rate
        if abs(burst - self.burst_bytes) <= 2 * _TICK_S * rate + 2:
            burst = self.burst_bytes
        return TokenBucketShape(rate / 125_000, round(burst), limit)


def longest_frame_bytes(packet_bytes: int) -> int:
    """Bytes for which the kernel charges a packet of offload: every segment with its headers."""
    return -(-packet_bytes * FRAME_BYTES // SEGMENT_BYTES) + FRAME_BYTES
