"""What the papers say of time in words, held against what the cost model predicts."""

from typing import NamedTuple


class Claim(NamedTuple):
    """`holds` by the predictions; `why` has their numbers."""

    id: str
    text: str
    holds: bool
    why: str
