"""The choices of `network.shaper`: htb, which all results here rest on, and what users of tc meet.

A shaper alone has its own queue: tbf's `limit` is `queue_ms` of the highest rate and the burst, as
`latency` of tc says it, or `queue_bytes`; netem's `rate` has whole frames in either.
"""

from collections.abc import Callable
from typing import NamedTuple

from harness.emulation import impairments
from harness.emulation.links import LoneQdisc, rate_bytes
from harness.emulation.netem_rate import NetemRate
from harness.emulation.packets import BURST_US, FRAME_BYTES
from harness.emulation.token_bucket import HELD_S, TokenBucket, longest_frame_bytes

HTB, TBF, NETEM_RATE = "htb", "tbf", "netem_rate"
MOST_REFILLED = 0.05  # of what the lowest rate passes between two changes


class ShapedLinks(NamedTuple):
    """Links of one profile that a shaper is for, in real rates and times."""

    lowest_mbit: float
    highest_mbit: float
    update_s: float  # between changes of the rate, at least
    queue_bytes: int
    is_queue_ms: bool  # the queue was told as a time
    packet_bytes: int  # longest that nodes hand over
    burst_bytes: int | None  # None: the shaper's own choice
    offload: str

    @property
    def changes(self) -> bool:
        return self.lowest_mbit != self.highest_mbit


def _htb(asked: ShapedLinks) -> None:
    if asked.burst_bytes is not None:
        raise ValueError(f"burst_bytes must be null unless shaper=tbf, got {asked.burst_bytes}")


def _token_bucket(asked: ShapedLinks) -> TokenBucket:
    own = max(
        rate_bytes(asked.highest_mbit) * BURST_US / 1e6, longest_frame_bytes(asked.packet_bytes)
    )
    burst = round(own) if asked.burst_bytes is None else asked.burst_bytes
    slowest = rate_bytes(asked.lowest_mbit)
    most = round(slowest * (MOST_REFILLED * asked.update_s if asked.changes else HELD_S))
    if burst > most:
        why = (
            f"as a tbf fills its bucket at every change, and {MOST_REFILLED:.0%} of what passes "
            "between two may be too much"
            if asked.changes
            else f"what the lowest rate passes in {HELD_S:g} s"
        )
        advice = "; use shaper=htb, a larger network.update_s, or a smaller burst_bytes"
        advice = advice if asked.changes else "; use shaper=htb"
        raise ValueError(f"burst_bytes of shaper=tbf must be <= {most}, {why}, got {burst}{advice}")
    waiting = burst if asked.is_queue_ms else 0
    return TokenBucket(burst, asked.queue_bytes + waiting)


def _netem_rate(asked: ShapedLinks) -> NetemRate:
    _htb(asked)
    if asked.offload == "keep":
        raise ValueError(
            "offload must be auto or off for a shaper whose limit counts packets of any length, as "
            "netem_rate, got 'keep'"
        )
    drained_s = asked.queue_bytes / rate_bytes(asked.lowest_mbit)
    if asked.changes and drained_s > asked.update_s:
        raise ValueError(
            "the queue of shaper=netem_rate must drain within update_s at the lowest rate, as a "
            f"change is felt behind it, got {drained_s:.3g} s of {asked.update_s:g}; use "
            "shaper=htb, a larger network.update_s, or a smaller network.queue_bytes"
        )
    return NetemRate(-(-asked.queue_bytes // FRAME_BYTES))


SHAPERS: dict[str, Callable[[ShapedLinks], LoneQdisc | None]] = {
    HTB: _htb,
    TBF: _token_bucket,
    NETEM_RATE: _netem_rate,
}


def require(shaper: str) -> None:
    """NetworkError that says how to get netem, where a shaper needs it and there is none."""
    if shaper == NETEM_RATE:
        impairments.require()
