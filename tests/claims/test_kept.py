"""Verdicts that are kept with the project are those of today's judge, and the pages count them."""

from collections import Counter

import pandas as pd
import pytest

from harness.reporting import kept
from harness.reporting.claims.base import (
    BY_CONSTRUCTION,
    FAILS,
    HOLDS,
    NOT_DECIDABLE,
    UNDECIDED,
    Claim,
)
from harness.reproduce import reference
from harness.reproduce.paper import Paper
from tests.claims.tables import row, table

STUDIES = sorted(path.name for path in reference.FOLDER.iterdir() if path.is_dir())
PAGE = {"dc2": "DC2", "netsense": "NetSenseML", "dct": "DCT", "acp_sgd": "ACP-SGD"}
PAGE |= {"covap": "COVAP", "local_steps": "local steps"}
ROOT = reference.FOLDER.parents[1]


def judged(study: str) -> list[Claim]:
    return kept.judge(reference.FOLDER / study, Paper.read(study).claims)


def counts(found: list[Claim]) -> Counter[str]:
    """Count the paper's claims, each once: by a verdict that rests on numbers, if it has one."""
    own = [claim for claim in found if not claim.ours and not claim.repeats]
    by_claim = {(claim.id, claim.text): claim.verdict for claim in own}
    measured = {(claim.id, claim.text): claim.verdict for claim in own if claim.measured}
    return Counter((by_claim | measured).values())


def cells(page: str, paper: str) -> list[str]:
    """Return the cells of the first row about `paper` that a page has."""
    lines = (ROOT / page).read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"| {paper} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


@pytest.mark.parametrize("study", STUDIES)
def test_kept_verdicts_and_counts_are_those_of_the_judge(study):
    found = judged(study)
    rows = pd.read_csv(reference.FOLDER / study / kept.CLAIMS, keep_default_na=False)
    assert [claim.verdict for claim in found] == rows.verdict.to_list()
    told = counts(found)
    order = (HOLDS, FAILS, UNDECIDED, NOT_DECIDABLE, BY_CONSTRUCTION)
    row_of_page = cells("docs/results.md", PAGE[study])[2:]
    shown = [int(cell.split()[0]) if cell else 0 for cell in row_of_page]
    assert shown == [told[verdict] for verdict in order]
    if study != "local_steps":
        holds, fails, rest = map(int, cells("README.md", PAGE[study])[3:])
        undecided = told[UNDECIDED] + told[NOT_DECIDABLE]
        assert (holds, fails, rest) == (told[HOLDS], told[FAILS], undecided)


def test_conditions_are_read_as_they_were_written(tmp_path):
    told = [{"steps": 9.0, "workers": 4.0, "profile.of": None}, {"steps": 9.0, "kind": "sgd"}]
    rows = [row("runs", "allreduce", conditions=each) for each in told]
    runs = table(*rows).assign(condition="", unlike="", setting=["1e5", "2e5"])
    runs.drop(columns=["conditions", "path", "workers"]).to_csv(tmp_path / kept.RUNS)
    kept.conditions(runs).to_csv(tmp_path / kept.CONDITIONS, index=False)
    assert kept.is_kept(tmp_path) and list(kept.table(tmp_path).conditions) == list(runs.conditions)
