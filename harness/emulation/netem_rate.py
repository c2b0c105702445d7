"""netem's `rate` as a link's shaper: packets leave one after the other; its wire format.

It has no burst, and its limit counts packets, of any length. A packet is given the moment at which
it leaves when it arrives, so a change of the rate is felt behind those that wait.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from harness.emulation.batch import attribute, attributes

KIND = "netem"
# tc_netem_qopt: delay, limit, loss, gap, duplication, jitter
_OPTIONS = struct.Struct("=IIIIII")
_RATE = struct.Struct("=IiIi")  # tc_netem_rate: rate, packet overhead, cell size, cell overhead
_LARGEST = 2**32 - 1
_RATE_IS, _RATE64 = 6, 8  # TCA_NETEM_...


class NetemRateShape(NamedTuple):
    """Parameters that a netem holds, or is to hold."""

    rate_mbit: float  # real
    limit_packets: int
    delay_ticks: int = 0
    loss: int = 0  # of 2^32 - 1


@dataclass(frozen=True)
class NetemRate:
    """One direction's netem, all but its rate: it neither delays nor loses otherwise."""

    limit_packets: int
    burst_bytes: ClassVar[int] = 0
    kind: ClassVar[str] = KIND
    title: ClassVar[str] = "netem rate"

    def intended(self, rate: int) -> NetemRateShape:
        """Return the parameters it is to hold at `rate` bytes/s."""
        return NetemRateShape(rate / 125_000, self.limit_packets)

    def options(self, rate: int) -> bytes:
        """The kernel's options for `rate` bytes/s."""
        told = _OPTIONS.pack(0, self.limit_packets, 0, 0, 0, 0)
        told += attribute(_RATE_IS, _RATE.pack(min(rate, _LARGEST), 0, 0, 0))
        if rate > _LARGEST:
            told += attribute(_RATE64, struct.pack("=Q", rate))
        return told

    def held(self, options: bytes) -> NetemRateShape:
        """Read the parameters from the kernel's options."""
        delay, limit, loss, _, _, _ = _OPTIONS.unpack_from(options)
        found = attributes(options, _OPTIONS.size)
        rate = _RATE.unpack_from(found[_RATE_IS])[0] if _RATE_IS in found else 0
        if _RATE64 in found:
            rate = struct.unpack("=Q", found[_RATE64])[0]
        return NetemRateShape(rate / 125_000, limit, delay, loss)
