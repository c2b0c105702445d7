"""Texts: every row of the batches reads on, and files are what they should be."""

from itertools import islice
from pydoc_data.topics import topics

import pytest
import torch

from harness.workloads.data.loader import Batches, shard
from harness.workloads.data.ptb import PTB
from harness.workloads.data.pydoc_text import PydocText, split
from harness.workloads.data.text import Windows
from tests.data.files import PTB_WORDS, write_ptb

LENGTH = 5


def counted(windows: int) -> Windows:
    """Words that are their own places."""
    return Windows(torch.arange(windows * LENGTH + 1), LENGTH)


@pytest.mark.parametrize(("windows", "batch_size", "size"), [(24, 2, 3), (29, 4, 2), (7, 1, 1)])
def test_every_row_reads_on_and_no_word_is_read_twice(windows, batch_size, size):
    samples, everything = counted(windows), []
    for rank in range(size):
        batches = Batches(samples, batch_size, rank, size, seed=3)
        epoch = list(islice(iter(batches), batches.steps_per_epoch))
        rows = torch.cat([inputs for inputs, _ in epoch], dim=1)
        assert torch.equal(rows, rows[:, :1] + torch.arange(rows.shape[1]))
        for inputs, labels in epoch:
            assert torch.equal(labels, inputs + 1)
        everything += rows.flatten().tolist()
    assert len(set(everything)) == len(everything)
    assert len(everything) == windows // (batch_size * size) * batch_size * size * LENGTH


def test_the_next_epoch_begins_again_and_one_can_begin_in_the_middle():
    batches = Batches(counted(24), 2, 1, 3, seed=0)
    first = list(islice(iter(batches), 2 * batches.steps_per_epoch))
    assert torch.equal(first[0][0], first[batches.steps_per_epoch][0])
    later = next(iter(Batches(counted(24), 2, 1, 3, seed=0, first=6)))
    assert torch.equal(later[0], first[6][0])


@pytest.mark.parametrize(("windows", "size"), [(100, 3), (5, 8), (64, 1)])
def test_a_test_text_is_read_once_in_rows_that_go_on(windows, size):
    seen = []
    for rank in range(size):
        rows: list[list[int]] = []
        for inputs, _ in shard(counted(windows), rank, size):
            rows = rows or [[] for _ in inputs]
            assert len(inputs) <= len(rows)
            for row, words in zip(rows, inputs.tolist(), strict=False):
                assert not row or words[0] == row[-1] + 1
                row += words
        seen += sum(rows, [])
    assert sorted(seen) == list(range(windows * LENGTH))


def test_ptb_is_read_in_the_true_format(tmp_path):
    write_ptb(tmp_path)
    data = PTB(folder=str(tmp_path), vocabulary=PTB_WORDS, window=4)
    for split_, samples in (("train", data.train()), ("test", data.test())):
        text = (tmp_path / "ptb" / f"ptb.{split_}.txt").read_text()
        expected = text.replace("\n", "<eos>").split()
        assert len(samples) == (len(expected) - 1) // 4
        words = torch.cat([inputs for inputs, _ in shard(samples, 0, 1)]).unique()
        assert len(words) == len(set(expected[: len(samples) * 4]))


@pytest.mark.parametrize(("file", "line", "message"), [
    ("train", b"", "ptb.train.txt:201: must be a sentence .* and is empty"),
    ("train", b"a <eos>", "ptb.train.txt:201: must be .* without <eos>, and has <eos> already"),
    ("train", b" \xff ", "ptb.train.txt:201: must be UTF-8 text"),
    ("train", b" new ", "ptb.train.txt:201: 'new' is different word number 61, .* must be 60"),
    ("test", b" N new ", "ptb.test.txt:51: 'new' must be a word of ptb.train.txt, and is not"),
])  # fmt: skip
def test_errors_of_the_format_name_file_and_line(file, line, message, tmp_path):
    write_ptb(tmp_path)
    with (tmp_path / "ptb" / f"ptb.{file}.txt").open("ab") as text:
        text.write(line + b"\n")
    data = PTB(folder=str(tmp_path), vocabulary=PTB_WORDS)
    data.check()
    with pytest.raises(ValueError, match=message):
        getattr(data, file)()
    with pytest.raises(ValueError, match=message):
        data.check_content()


def test_another_vocabulary_is_told(tmp_path):
    write_ptb(tmp_path)
    with pytest.raises(ValueError, match=r"must have 10000 different words \(dataset.vocabulary\)"):
        PTB(folder=str(tmp_path)).train()


def test_no_paragraph_of_the_reference_is_in_both_splits():
    train, test = (" ".join(words).split(" <eos>") for words in split(topics))
    assert len(set(train)) == len(train) and not {p for p in set(test) & set(train) if p}
    assert len(PydocText().train()) > 1_500 and len(PydocText().test()) > 100
