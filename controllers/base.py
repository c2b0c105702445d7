"""What a controller sees of an exchange, and what it decides."""

from typing import NamedTuple, Protocol


class Observation(NamedTuple):
    """One finished exchange at one worker; times are emulated seconds."""

    step: int  # number of the exchange observed, 0 for the first
    time_s: float  # training clock at its end
    density: float  # fraction of gradient elements this worker contributed
    delay_s: float  # communication time, compression excluded
    compress_s: float
    compute_s: float
    exposed_s: float  # communication that backward did not hide
    sent_bytes: int
    received_bytes: int
    dense_bytes: int  # 4 n, the uncompressed gradient


class Controller(Protocol):
    """Chooses the density of every exchange from what the previous ones took."""

    def density(self, seen: Observation | None) -> float:
        """Density in (0, 1] for the next exchange; `seen` is the last, None before the first."""
        ...

    def state(self) -> dict[str, float]:
        """Quantities worth recording beside the density (one row per step); may be empty."""
        ...
