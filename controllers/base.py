"""What a controller sees of an exchange, and what it decides.

A number that is measured of every exchange is declared once, as a line of `Measurement`: steps.csv,
what a controller observes, the tables of a report and docs/columns.md follow.
"""

from dataclasses import dataclass
from math import nan
from typing import Annotated, NamedTuple, Protocol


class Column(NamedTuple):
    """One column of a table: its meaning, and how to show it. The name ends in its unit."""

    told: str = ""  # description, in one line
    title: str = ""  # above it in a table; empty: its name
    key: bool = False  # identifies the row, and stands first
    recorded: bool = True  # in the csv
    averaged: bool = False  # the mean over ranks and settled steps is a number of the run
    shown: bool = False  # likewise, and in the tables that compare methods
    digits: int = 3  # significant ones that are shown
    percent: bool = False  # a share that is shown in per cent
    signed: bool = False  # shown with a + where it is above 0
    wide: bool = False  # shown only where there is room: not in a terminal


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Measurements of one exchange at one worker; nan where nothing measures them.

    The norms, over the whole gradient, are nan unless the controller has `needs_norms = True`:
    they cost a read of the gradient each.
    """

    backward_s: Annotated[float, Column("backward pass, which hides communication", recorded=False)]
    overlap_window_s: Annotated[
        float, Column("from the first bucket's readiness to the end of compute_s", recorded=False)
    ]
    compress_s: Annotated[float, Column("compression and decompression", averaged=True)]
    comm_s: Annotated[float, Column("collectives; where workers agree on a density, a controller "
                                    "sees them without waiting for the last to begin")]  # fmt: skip
    exposed_s: Annotated[
        float, Column("part of comm_s with neither compute nor compression beside", averaged=True)
    ]
    sent_bytes: Annotated[int, Column("payload")]
    received_bytes: Annotated[int, Column("payload")]
    dense_bytes: Annotated[int, Column("4 n, the uncompressed gradient; with two levels its shard")]
    density: Annotated[
        float, Column("share of gradient entries that was asked for; nan where nothing is sent")
    ]
    achieved_density: Annotated[
        float, Column("share sent of entries that are compressed; nan: as density says")
    ] = nan
    inside_bytes: Annotated[int, Column("payload sent inside the node, with two levels")] = 0
    grad_norm: Annotated[float, Column("|g|, before the residual e is added", recorded=False)] = nan
    residual_norm: Annotated[float, Column("|e|, before it is added", recorded=False)] = nan
    gain: Annotated[float, Column("|sent|^2 / |g|^2; what was sent is taken as orthogonal to the "
                                  "rest", recorded=False)] = nan  # fmt: skip
    captured: Annotated[float, Column("|sent|^2 / |g + e|^2", recorded=False)] = nan


@dataclass(frozen=True, kw_only=True)
class Observation(Measurement):
    """One finished step of one worker. Times are emulated seconds."""

    step: Annotated[int, Column("0 for the first", key=True)]
    time_s: Annotated[float, Column("training clock at its end, evaluation excluded")]
    compute_s: Annotated[float, Column("forward and backward", averaged=True)]
    workers: Annotated[int, Column("how many exchange", recorded=False)]
    local_steps: Annotated[
        int, Column("steps whose computation this is, since the exchange before", recorded=False)
    ] = 1


class Controller(Protocol):
    """Base class of controllers, which choose the density of each exchange from the previous ones.

    Subclasses declare the class attributes below where they differ from the defaults.
    """

    same_everywhere: bool = False  # all workers choose one density without agreeing
    needs_norms: bool = False  # it looks at the norms of `Measurement`
    # what exchanges take decides; False: on every network it chooses alike, and so training is too
    reacts_to_network: bool = True
    chooses_horizon: bool = False  # it says how many local steps are taken between two exchanges

    def density(self, seen: Observation | None) -> float:
        """Return the next exchange's density in (0, 1]; `seen` is the last step, None at first."""
        ...

    def horizon(self, seen: Observation) -> int:
        """Return the number of steps, >= 1, from the exchange `seen` to the next.

        Only controllers with `chooses_horizon` are asked, at the start of each round of local
        steps, before they are asked for the density of its exchange.
        """
        return seen.local_steps

    def state(self) -> dict[str, float]:
        """Return quantities to record beside the density, one value per step. It may be empty."""
        ...
