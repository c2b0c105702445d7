"""A target that the metric cannot come to is refused before anything starts, in one line."""

import sys
from math import inf, nan
from pathlib import Path

import pytest

from harness.config.scales import compose
from harness.config.settings import BadSetting
from harness.records.metrics import RANGES, beyond
from harness.validation import checked
from tests.launching import completed

ALONE = ("network=simulated", "steps=2", "workers=2")


def refused(*words: str) -> str:
    with pytest.raises(BadSetting) as found:
        checked(compose([*ALONE, *words])[0])
    said = str(found.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(("value", "said"), [
    ("90", "target.value must be in (0, 1] for accuracy (90 % is 0.9), or null, got 90.0"),
    ("0", "target.value must be in (0, 1] for accuracy, or null, got 0.0"),
    ("-0.5", "target.value must be in (0, 1] for accuracy, or null, got -0.5"),
    ("90%", "target.value must be a number in [-1e20, 1e20] or null, got '90%'; write 0.9"),
    ("nan", "target.value must be a number in [-1e20, 1e20] or null, got nan"),
    ("inf", "target.value must be a number in [-1e20, 1e20] or null, got inf"),
    ("high", "target.value must be a number in [-1e20, 1e20] or null, got 'high'"),
])  # fmt: skip
def test_of_an_accuracy(value: str, said: str) -> None:
    assert refused(f"target.value={value}") == said


@pytest.mark.parametrize("value", ["-20", "0", "1"])
def test_of_a_perplexity(value: str) -> None:
    said = refused("dataset=pydoc", "model=lstm_ptb", f"target.value={value}")
    assert said == f"target.value must be above 1 for perplexity, or null, got {float(value)}"


def test_of_a_loss() -> None:
    said = refused("target.metric=loss", "target.value=-1")
    assert said == "target.value must be above 0 for loss, or null, got -1.0"
    checked(compose([*ALONE, "target.metric=loss", "target.value=2.3"])[0])


@pytest.mark.parametrize("metric", RANGES)
def test_what_a_metric_comes_to_is_a_target(metric: str) -> None:
    low, high = RANGES[metric]
    assert not beyond(metric, (low + min(high, 1000)) / 2) and beyond(metric, low)
    assert not beyond(metric, high) or high == inf
    assert beyond(metric, nan) and not beyond("of someone else's data set", -3)


def test_the_command_says_it_in_one_line_and_starts_nothing(tmp_path: Path) -> None:
    words = [*ALONE, "target.value=90", f"results={tmp_path / 'new'}"]
    told = completed([sys.executable, "-m", "harness", *words], 120)
    assert told.returncode == 1 and not (tmp_path / "new").exists()
    [line] = told.stderr.splitlines()
    assert "target.value must be in (0, 1] for accuracy (90 % is 0.9), or null, got 90.0" in line
