"""Constants that were read from a published cell are found, and confirm nothing of it."""

import csv

import pytest

from harness.config import scales
from harness.fidelity.bench import load_bench
from harness.reporting.analysis.load import _conditions
from harness.reporting.claims import origins, papers
from harness.reporting.claims.base import BY_CONSTRUCTION, HOLDS, Found, PaperClaims
from harness.reporting.claims.origins import Fitted
from harness.studies import studies
from tests.claims.tables import row, table

FAKE = Fitted({"profile.rate_mbit": 7.0}, [{"id": "fig1", "metric": "time"}], "by hand")
FITTING = [study for study in studies() if study.file("fitted.yaml")]


def judged(rate_mbit: float, cells):
    made = PaperClaims("by_hand", workers=4)
    made.says("fig1", "so", lambda runs: Found(bool(len(runs.of("r").rows())), "1"), cells=cells)
    told = {"profile.rate_mbit": rate_mbit}
    rows = [row("r", "allreduce", seed, conditions=told) for seed in range(3)]
    (claim,) = made.judge(table(*rows), "virtual", "laptop")
    return claim


def test_a_claim_on_cells_that_settings_were_read_from_is_by_construction(monkeypatch):
    monkeypatch.setattr(origins, "fitted", lambda: (FAKE,))
    time, other = ({"id": "fig1", "metric": metric} for metric in ("time", "loss"))
    found = judged(7.0, [time])
    assert found.verdict == BY_CONSTRUCTION
    assert found.reason == "calibrated input: constants were read from fig1 time"
    assert judged(8.0, [time]).verdict == HOLDS  # other settings
    assert judged(7.0, [other]).verdict == HOLDS  # another cell
    both = judged(7.0, [time, other])
    assert both.verdict == HOLDS and both.measured == "1; constants were read from fig1 time"
    assert judged(7.0, None).verdict == judged(7.0, []).verdict == HOLDS


@pytest.mark.parametrize("study", FITTING, ids=lambda study: study.name)
def test_settings_that_were_read_are_those_of_an_experiment(study):
    names = sorted(file.stem for file in (study.folder / "conf/experiment").glob("*.yaml"))
    left = origins.fitted_of(study)
    for name in names:
        for scale in ("laptop", "paper"):
            runs = scales.compose([f"+experiment={name}", f"scale={scale}", "seed=0"])
            for told in (_conditions(settings.config) for settings in runs):
                left = [e for e in left if any(told.get(k) != v for k, v in e.settings.items())]
            if not left:
                return
    assert not left


def test_cells_that_something_was_read_from_are_published():
    published = [
        cell
        for study in studies()
        if (file := study.file("published.csv"))
        for cell in csv.DictReader(file.open())
    ]
    given = [cell for each in origins.fitted() for cell in each.cells]
    given += [
        cell
        for paper in papers()
        for declared in paper.declared
        for cell in declared.cells
        if cell != {"id": declared.id}
    ]
    assert given
    for cell in given:
        assert any(cell.items() <= each.items() for each in published), cell


@pytest.mark.parametrize("study", FITTING, ids=lambda study: study.name)
def test_a_testbed_has_the_same_inputs(study):
    """What a replay of a run may not confirm, its prediction may not either."""
    if (file := study.file("testbed.yaml")) is None:
        return
    bed = load_bench(file)
    inputs = [each.columns for each in (*bed.inputs, *bed.follows)]
    cells = [cell for each in origins.fitted_of(study) for cell in each.cells]
    assert all(origins.are_of(cells, inputs))
