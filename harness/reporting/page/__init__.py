"""Writes a report as self-contained web pages: one per experiment, and an index of several."""

from pathlib import Path

import pandas as pd

from harness.records.outputs import OutputFolder
from harness.reporting.analysis.comparison import Comparison, methods
from harness.reporting.figures import styles
from harness.reporting.figures.agreement import agreement as agreement_figure
from harness.reporting.page import experiment, html, pictures
from harness.reporting.page.pictures import Pictures


def write(
    runs: pd.DataFrame,
    compared: list[Comparison],
    drawn: dict[str, Pictures],
    pairs: dict[str, pd.DataFrame],
    out: OutputFolder,
) -> list[Path]:
    """Write index.html to `out`, and with several experiments a page each; return all paths.

    `runs` are all rows of `load.runs`. `drawn` has the pictures of each comparison and experiment
    by name, and `pairs` the `agreement.paired` by experiment. An experiment without a run that
    counts has no page.
    """
    names = [each.runs.experiment.iloc[0] for each in compared]
    pages = []
    for name in dict.fromkeys(names):
        own = runs[runs.experiment == name]
        of_it = [each for each, whose in zip(compared, names, strict=True) if whose == name]
        twins = pairs[name]
        with styles.of_page(methods(of_it[0], compared)):
            picture = None if twins.empty else _agreement(twins)
            pages.append(experiment.gather(own, of_it, drawn, twins, picture))
    if len(pages) == 1:
        return [_page(out, "index.html", pages[0], alone=True)]
    files = [_page(out, f"{each.name}.html", each, alone=False) for each in pages]
    index = html.render("index.html", title="Experiments", pages=pages)
    return [out.write("index.html", index), *files]


def _agreement(pairs: pd.DataFrame) -> pictures.EmbeddedFigure:
    caption = "Mean step in virtual time against that over real packets."
    return pictures.of(agreement_figure(pairs), caption)


def _page(out: OutputFolder, name: str, shown: experiment.Experiment, alone: bool) -> Path:
    page = html.render("experiment.html", title=shown.name, page=shown, alone=alone)
    return out.write(name, page)
