"""Clicks: the text is what the table says, errors name file and line, and a table is kept."""

import os
from concurrent.futures import ProcessPoolExecutor
from math import log1p
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.workloads.data import columns
from harness.workloads.data.clicks import CARDINALITIES, Clicks, Teacher, lines
from harness.workloads.data.columns import COUNTS, Numbering, days, read
from harness.workloads.data.criteo import Criteo

GOOD = "\t".join(["1", "3", "", "-2", *["0"] * 10, "68fd1e64", "", *["0a0b0c0d"] * 24])


def criteo(folder: Path, *text: str) -> Criteo:
    (folder / "criteo").mkdir(exist_ok=True)
    (folder / "criteo" / "train.txt").write_text("".join(f"{line}\n" for line in text))
    return Criteo(folder=str(folder), cache=str(folder / "cache"), rows=100)


def test_a_line_becomes_what_it_says(tmp_path) -> None:
    data = criteo(tmp_path, *[GOOD] * 13, GOOD.replace("68fd1e64", "ffffffff"))
    train, test = data.train(), data.test()
    assert (len(train), len(test)) == (12, 2)
    inputs, labels = next(test.stream([(torch.tensor([0, 1]), (2, 0))]))
    assert labels.tolist() == [1, 1]
    assert inputs[0, :3, 0].tolist() == pytest.approx([log1p(3), 0, 0])  # missing, negative
    assert inputs[:, COUNTS, 0].tolist() == [1, 2]  # in the order in which they came
    assert inputs[:, COUNTS + 1 :, 0].tolist() == [[0, *[1] * 24]] * 2  # 0: missing


@pytest.mark.parametrize(("line", "message"), [
    (GOOD + "\t1", r"must have 40 columns .* got 41"),
    (GOOD.removeprefix("1\t"), r"must have 40 columns .* got 39"),  # Kaggle's test.txt
    ("2" + GOOD[1:], "the label must be 0 or 1, got '2'"),
    (GOOD.replace("\t3\t", "\t3.5\t"), r"number 1 of 13 must be a whole one .* got '3.5'"),
    (GOOD.replace("\t3\t", "\t4294967296\t"), "number 1 of 13 must be .* got '4294967296'"),
    (GOOD.replace("68fd1e64", "68fd1e6"), "category 1 of 26 must be 8 hex.* got '68fd1e6'"),
    (GOOD.replace("68fd1e64", "68fd1e6x"), "category 1 of 26 must be 8 hex.* got '68fd1e6x'"),
    ("", "must have 40 columns .* got 1"),
])  # fmt: skip
def test_errors_of_the_format_name_file_and_line(line, message, tmp_path) -> None:
    data = criteo(tmp_path, *[GOOD] * 20, line, GOOD)
    data.check()
    with pytest.raises(ValueError, match=rf"criteo/train\.txt:21: {message}"):
        data.train()
    assert not list((tmp_path / "cache").glob("*.int32"))
    assert len(criteo(tmp_path, *[GOOD] * 21).train()) == 18  # once the file is mended


def test_a_file_of_less_than_a_line_a_day_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="must have 7 lines at least, .* got 6"):
        criteo(tmp_path, *[GOOD] * 6).train()


def test_categories_beyond_the_rows_share_them() -> None:
    numbering = Numbering(4)
    names = [b"%08x" % value for value in (7, 9, 7, 11, 30, 31, 32, 9)]
    assert [numbering.row(3, name) for name in names] == [1, 2, 1, 3, 1, 2, 3, 2]
    assert numbering.row(4, names[3]) == 1 and numbering.row(3, b"") == 0


def test_a_table_is_parsed_once_for_the_same_file(tmp_path, monkeypatch) -> None:
    data, parsed = criteo(tmp_path, *[GOOD] * 14), []
    parse = columns.parse
    monkeypatch.setattr(columns, "parse", lambda *each: (parsed.append(each), parse(*each)))
    assert len(data.train()) == len(data.train()) == 12 and len(parsed) == 1
    criteo(tmp_path, *[GOOD] * 21).train()  # another size
    text = tmp_path / "criteo" / "train.txt"
    os.utime(text, ns=(1, 1))  # another time
    data.train()
    read(text, tmp_path / "cache", 5)  # another number of rows
    assert len(parsed) == 4


def test_who_comes_meanwhile_waits_and_all_get_the_same(tmp_path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        found = list(pool.map(_rows, [str(tmp_path)] * 3))
    assert all(np.array_equal(each, found[0]) for each in found)
    assert len(list(tmp_path.glob("*.int32"))) == len(list(tmp_path.glob("*.txt"))) == 1


def _rows(cache: str) -> np.ndarray:
    return Clicks(length=700, cache=cache).train().rows


def test_the_reader_gives_back_what_was_generated(tmp_path) -> None:
    """Field by field, for lines that the generator made."""
    table = np.concatenate([part.rows for part in _splits(tmp_path, 700)])
    for row, line in zip(table, lines(700, 0), strict=True):
        label, *fields = line.rstrip("\n").split("\t")
        assert row[0] == int(label)
        assert row[1 : 1 + COUNTS].tolist() == [int(field or 0) for field in fields[:COUNTS]]
    for column in range(1 + COUNTS, table.shape[1]):
        said = [line.rstrip("\n").split("\t")[column] for line in lines(700, 0)]
        pairs = set(zip(said, table[:, column].tolist(), strict=True))
        assert len(pairs) == len(set(said)) == len(set(table[:, column]))


def _splits(cache: Path, length: int, seed: int = 0):
    data = Clicks(length=length, seed=seed, cache=str(cache))
    return data.train(), data.test()


def test_generated_clicks_are_a_function_of_the_seed(tmp_path) -> None:
    one, other = (list(lines(50, seed)) for seed in (0, 1))
    assert one == list(lines(50, 0)) != other


def test_generated_clicks_are_like_real_ones(tmp_path) -> None:
    train, test = _splits(tmp_path, 7_000)
    rows = np.concatenate([train.rows, test.rows])
    assert 0.2 < rows[:, 0].mean() < 0.35
    assert (rows[:, 1 : 1 + COUNTS] < 0).any() and rows[:, 1 : 1 + COUNTS].max() > 100
    frequencies = np.sort(np.bincount(rows[:, -1]))[::-1]
    assert len(np.unique(rows[:, -1])) <= CARDINALITIES[-1] == 30
    assert frequencies[0] > 5 * frequencies[10]  # Zipf's law


def test_there_is_much_to_learn_and_not_from_the_rate_of_clicks_alone() -> None:
    source = np.random.default_rng(0)
    teacher = Teacher(source)
    z = source.normal(size=(20_000, COUNTS)) @ teacher.mixing
    drawn = np.stack([source.integers(n, size=len(z)) for n in CARDINALITIES], axis=1)
    chance = 1 / (1 + np.exp(-teacher.logits(z, drawn)))

    def entropy(p):
        return -(p * np.log(p) + (1 - p) * np.log(1 - p))

    assert entropy(chance).mean() < 0.75 * entropy(chance.mean())


@pytest.mark.parametrize(("interactions", "least"), [(0.0, 0.0), (4.0, 0.2)])
def test_interactions_are_what_no_sum_over_columns_says(interactions, least) -> None:
    """The share of the logits' variance that the best sum over columns leaves, on 5,000 others."""
    source = np.random.default_rng(0)
    teacher = Teacher(source, interactions)
    z = source.normal(size=(20_000, COUNTS)) @ teacher.mixing
    drawn = np.stack([source.integers(n, size=len(z)) for n in CARDINALITIES], axis=1)
    logits = teacher.logits(z, drawn)
    columns = [np.eye(n)[drawn[:, column]] for column, n in enumerate(CARDINALITIES)]
    inputs = np.concatenate([z, *columns, np.ones((len(z), 1))], axis=1)
    fitted, *_ = np.linalg.lstsq(inputs[:15_000], logits[:15_000], rcond=None)
    left = (logits - inputs @ fitted)[15_000:].var() / logits[15_000:].var()
    assert left > least if least else left < 1e-9


def test_another_weight_of_interactions_is_another_file(tmp_path) -> None:
    for weight in (1.0, 4.0):
        Clicks(length=700, interactions=weight, cache=str(tmp_path)).train()
    assert len(list(tmp_path.glob("*.txt"))) == 2
    assert list(lines(50, 0)) == list(lines(50, 0, 1.0)) != list(lines(50, 0, 4.0))


def test_days_keep_the_order_of_time() -> None:
    rows = np.arange(14)[:, None]
    train, test = days(rows)
    assert train.rows[:, 0].tolist() == list(range(12)) and test.rows[:, 0].tolist() == [12, 13]
