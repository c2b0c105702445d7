"""Passages: labels are right, no line is in both splits, and no word tells a module by itself."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.workloads.data import passages
from harness.workloads.data.passages import COMMON, RUN, TEST_EVERY, UNKNOWN, Passages, _parted

SMALL = Passages(classes=12, most=400)


@pytest.fixture
def written(tmp_path, monkeypatch) -> Passages:
    """Four modules that say their own name and count on, passages of five words."""
    for name in ("ant", "bee", "cat", "dog"):
        text = " ".join(f"{name} is here {number} ." for number in range(5 * RUN))
        (tmp_path / f"{name}.py").write_text(text)
    found = sorted(tmp_path.glob("*.py"))
    monkeypatch.setattr(passages, "modules", lambda: found)
    return Passages(classes=4, words=5, vocabulary=50)


def test_labels_are_of_the_module_that_a_passage_is_from(written, monkeypatch):
    monkeypatch.setattr(passages, "COMMON", 1)  # so that names have numbers
    both = written.train(), written.test()
    for part in both:
        firsts = [part.images[part.labels == label, 0, 0] for label in range(4)]
        assert len({first[0].item() for first in firsts}) == 4
        assert all((first == first[0]).all() and first[0] != UNKNOWN for first in firsts)
    assert torch.equal(both[0].images[0], both[0].images[0].round())


def test_words_of_few_modules_have_no_number(written):
    numbers = written.train().images
    assert (numbers[:, 0, 0] == UNKNOWN).all()  # a name of one module
    assert (numbers[:, 0, 1] != UNKNOWN).all() and COMMON == 8  # "is", of all four


def test_runs_in_turn_are_for_training_and_for_testing():
    text = [[str(number)] for number in range(10 * RUN + 3)]
    train, test = _parted(text)
    assert sorted(train + test) == sorted(text) and len(test) == 2 * RUN
    assert test[0] == [str((TEST_EVERY - 1) * RUN)]


def test_no_module_is_most_of_it_and_all_are_tested():
    train, test = SMALL.train(), SMALL.test()
    assert 0.15 < len(test) / (len(train) + len(test)) < 0.25
    for part in (train, test):
        counts = part.labels.bincount(minlength=12)
        assert counts.min() > 0 and counts.max() < 0.2 * len(part)
        assert part.images.shape[1:] == SMALL.shape == (1, 20)
    assert torch.equal(train.images, replace(SMALL).train().images)


def test_a_library_of_few_modules_is_told(monkeypatch):
    monkeypatch.setattr(passages, "modules", lambda: [Path("one.py")])
    with pytest.raises(FileNotFoundError, match="64 source files .* needed .* got 1"):
        Passages().check()
