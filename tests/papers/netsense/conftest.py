"""Rows of hand-made tables have steps."""

import pytest

from harness.reporting.analysis import load
from tests.papers.netsense.speeds import STEPS


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the paths of rows `at` a speed hold; of other paths what is there."""
    read = load.steps
    monkeypatch.setattr(load, "steps", lambda path: STEPS[path] if path in STEPS else read(path))
