"""Runs of DCT's controls that lose what they have to."""

from typing import Any

from harness.reporting.claims.guards import MUST_LOSE
from papers.dct import claims
from tests.claims.tables import row

CLICKS = {"model": "dlrm", "dataset": "clicks"}
WORDS = {"model": "transformer_small", "dataset": "catalogues"}
LOST = 1.1  # times as much as has to be


def of_clicks(lost: float = LOST, **known: Any) -> list[dict[str, Any]]:
    return _runs(claims.CONTROLS, claims.LOSING, "loss", lost, **CLICKS, **known)


def of_words(**known: Any) -> list[dict[str, Any]]:
    return _runs(claims.IN_WORDS, claims.LOSING, "loss", LOST, **WORDS, **known)


def _runs(
    experiment: str, losing: tuple[str, ...], metric: str, lost: float, **known: Any
) -> list[dict[str, Any]]:
    """The dense ones at a quality of 1, the others at what is left; three seeds."""
    left = {"allreduce": 1.0} | dict.fromkeys(losing, 1 - lost * MUST_LOSE[metric])
    return [
        row(experiment, method, seed, metric=metric,
            final=1 / quality if metric == "loss" else quality, **known)
        for method, quality in left.items()
        for seed in range(3)
    ]  # fmt: skip
