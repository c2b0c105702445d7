"""What a cell of ACP-SGD's tables asks for: its methods, and under which conditions."""

import re
from dataclasses import dataclass

from harness.fidelity.cells import Cell, Unpredictable, rate_mbit

BUFFER_MB = 25.0
RANKS = {"ResNet": 4, "BERT": 32}
STAR_FROM = ("acp_fig9", "acp_fig10", "acp_fig11a", "acp_fig11b", "acp_fig12", "acp_fig13")
NAMES = {"ACP": "ACP-SGD", "Top-k": "Top-k SGD", "Power": "Power-SGD", "Sign": "Sign-SGD"}


@dataclass(frozen=True)
class Run:
    """One method under the conditions of a cell; None: the paper's usual."""

    method: str
    model: str
    workers: int | None = None
    rate_mbit: float | None = None
    batch: int | None = None
    rank: int | None = None
    fusion: str = "WFBP+TF"  # naive | WFBP | WFBP+TF
    buffer_mb: float = BUFFER_MB


def rank_of(model: str) -> int:
    for family, rank in RANKS.items():
        if model.startswith(family):
            return rank
    raise Unpredictable(f"no rank is published for {model!r}")


def option(text: str, key: str) -> str:
    """Number that follows `key` in a method's text; "" if there is none."""
    found = re.search(rf"{re.escape(key)}(\d+)", text)
    return found[1] if found else ""


def run_of(cell: Cell, name: str) -> Run:
    """A method of a cell, by its name there."""
    name = name.strip().partition(" ")[0] if not name.startswith("Top-k") else "Top-k"
    name = NAMES.get(name, name)
    if name == "Power-SGD" and cell.id in STAR_FROM:
        name = "Power-SGD*"
    batch, rank = option(cell.method, "bs="), option(cell.method, "r=")
    workers = int(cell.workers) if cell.workers.isdigit() else None
    return Run(
        name,
        cell.model,
        workers=workers,
        rate_mbit=None if workers == 1 else rate_mbit(cell.network),
        batch=int(batch) if batch else None,
        rank=int(rank) if rank else None,
    )


def pair(cell: Cell) -> tuple[Run, Run]:
    """The two methods of "A vs B"; a rank is only told of what has one."""
    one, versus, other = cell.method.partition(" vs ")
    if not versus:
        raise Unpredictable(f"method must be like 'ACP vs S-SGD', got {cell.method!r}")
    return run_of(cell, one), run_of(cell, other)


def change(method: str, key: str) -> tuple[str, int, int]:
    """Name and both values of "ACP-SGD r32->r256" or "S-SGD bs16->32"."""
    found = re.fullmatch(rf"(\S+) {key}(\d+)->(?:{key})?(\d+)", method)
    if found is None:
        raise Unpredictable(f"method must be like 'S-SGD {key}16->32', got {method!r}")
    return found[1], int(found[2]), int(found[3])
