"""Artificial observations of exchanges, for the laws of controllers."""

from typing import Any

from controllers.base import Observation


def seen(step: int, **values: Any) -> Observation:
    """Return exchange `step` of 4 workers with 4000 dense bytes; `values` replace its fields."""
    usual = dict(
        step=step,
        time_s=0.1 * step,
        density=0.1,
        comm_s=0.1,
        compress_s=0.01,
        compute_s=0.05,
        backward_s=0.04,
        overlap_window_s=0.03,
        exposed_s=0.05,
        sent_bytes=10,
        received_bytes=10,
        dense_bytes=4000,
        workers=4,
    )
    return Observation(**{**usual, **values})
