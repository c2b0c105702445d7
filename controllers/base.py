"""What a controller sees of an exchange, and what it decides."""

from math import nan
from typing import NamedTuple, Protocol


class Observation(NamedTuple):
    """One finished exchange at one worker; times are emulated seconds.

    The norms, over the whole gradient, are nan unless the controller has `needs_norms = True`:
    they cost a read of the gradient each.
    """

    step: int  # number of the exchange observed, 0 for the first
    time_s: float  # training clock at its end
    density: float  # fraction of gradient elements this worker contributed
    delay_s: float  # communication time, compression excluded; and, where workers agree on a
    # density, without waiting for the last of them to begin
    compress_s: float
    compute_s: float  # of the step, forward and backward
    backward_s: float  # the backward part of it, which is what hides communication
    hiding_s: float  # from when the first bucket could be sent to the end of compute
    exposed_s: float  # communication that backward did not hide
    sent_bytes: int
    received_bytes: int
    dense_bytes: int  # 4 n, the uncompressed gradient
    workers: int
    grad_norm: float = nan  # of the gradient g, before the residual e is added
    residual_norm: float = nan  # of e, before it is added
    gain: float = nan  # |sent|^2 / |g|^2; what was sent is taken as orthogonal to the rest
    captured: float = nan  # |sent|^2 / |g + e|^2
    occupancy: float = nan  # share of entries that were contributed, where density does not say


class Controller(Protocol):
    """Chooses the density of every exchange from what the previous ones took."""

    def density(self, seen: Observation | None) -> float:
        """Density in (0, 1] for the next exchange; `seen` is the last, None before the first."""
        ...

    def state(self) -> dict[str, float]:
        """Quantities worth recording beside the density (one row per step); may be empty."""
        ...
