"""Map of where a claim holds, over two settings; what else was varied is in a field's share."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from harness.reporting.figures.theme import LOOK, sheet

FIELD_IN, AROUND_IN = 0.45, 1.6  # height of a row, and of all else
COLORS = "RdYlBu"  # told apart without red and green; what holds is blue


@mpl.rc_context(LOOK)
def holds_map(title: str, keys: Mapping[str, Sequence[str]], shares: np.ndarray) -> Figure:
    """`shares` in [0, 1] or nan, a column for each value of the first of `keys`.

    And a row for each of the second, or one where there is none.
    """
    figure = sheet(title, AROUND_IN + FIELD_IN * len(shares))
    (x, columns), *others = keys.items()
    y, rows = others[0] if others else ("", [""])
    axes = figure.subplots()
    axes.grid(False)
    image = axes.imshow(shares, cmap=COLORS, vmin=0, vmax=1, origin="lower", aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        said = "-" if np.isnan(share) else f"{share:.0%}"
        pale = np.isnan(share) or 0.15 < share < 0.85
        axes.text(column, row, said, ha="center", va="center", color="black" if pale else "white")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel=x, ylabel=y)
    figure.colorbar(image, label="holds in", format="{x:.0%}")
    return figure
