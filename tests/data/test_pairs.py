"""Pairs of sentences: what a file says comes out again, and nothing of the test part is known."""

from pathlib import Path

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from harness.engine.training.task import Task
from harness.workloads.data.base import UNLABELLED
from harness.workloads.data.loader import shard
from harness.workloads.data.pairs import BEGIN, END, PACKAGED, PADDING, Bleu, Pairs, read
from harness.workloads.models.transformer import Transformer
from tests.data.files import write_pairs

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Pairs:
    folder = tmp_path_factory.mktemp("data")
    write_pairs(folder)
    return Pairs(
        "iwslt14_de_en", str(folder), words=120, vocabulary=400, cache=str(folder / "kept")
    )


def until_end(row: list[int]) -> list[int]:
    return row[: row.index(END)]


def test_every_sentence_comes_out_as_it_went_in(data) -> None:
    pieces, found = data.pieces(), []
    for inputs, labels in shard(data.test(), 0, 1):
        assert inputs.shape[0] == labels.shape[0] and inputs.shape[2] == labels.shape[1]
        assert (inputs[:, 1, 0] == BEGIN).all()
        for (source, target), label in zip(inputs.tolist(), labels.tolist(), strict=True):
            said = until_end(label)
            assert target == [BEGIN, *said, *[PADDING] * (len(target) - len(said) - 1)]
            assert set(label[len(said) + 1 :]) <= {UNLABELLED}
            found.append((pieces.decode(until_end(source)), pieces.decode(said)))
    assert sorted(found) == sorted(read(Path(data.folder) / data.name / "test.tsv"))


def test_short_sentences_are_tested_together(data) -> None:
    """A batch is as long as its longest sentence, and translated for longer still."""
    test = data.test()
    alone = ((one, (0,)) for one in torch.arange(len(test)).split(1))
    lengths = [inputs.shape[2] for inputs, _ in test.stream(alone)]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


def test_pieces_are_of_the_training_part_alone_and_the_same_each_time(data, tmp_path) -> None:
    write_pairs(tmp_path, other_test=True)
    again = Pairs("iwslt14_de_en", str(tmp_path), words=120, vocabulary=400, cache=str(tmp_path))
    assert again.pieces().serialized_model_proto() == data.pieces().serialized_model_proto()
    assert data.pieces().get_piece_size() == 400
    assert len(list((Path(data.cache)).glob("*.model"))) == 1


def test_long_sentences_are_left_out_of_training_and_whole_in_tests(data) -> None:
    """Or BLEU would be against a part of what should have been said."""
    short = Pairs(data.name, data.folder, words=40, vocabulary=400, cache=data.cache)
    assert 0 < len(short.train()) < len(data.train())
    assert max(inputs.shape[2] for inputs, _ in shard(short.train(), 0, 1)) <= 40
    for (ours, labels), (theirs, others) in zip(
        shard(short.test(), 0, 1), shard(data.test(), 0, 1), strict=True
    ):
        assert torch.equal(ours, theirs) and torch.equal(labels, others) and ours.shape[2] > 40


@pytest.mark.parametrize(("line", "message"), [
    (b"only one", r"train.tsv:41: must be two sentences .* got 1 with \[2\] words"),
    (b"a\tb\tc", r"train.tsv:41: must be two sentences .* got 3 with"),
    (b"a b\t ", r"train.tsv:41: must be two .* got 2 with \[2, 0\] words"),
    (b"\xff\ta", "train.tsv:41: must be UTF-8 text"),
])  # fmt: skip
def test_errors_of_the_format_name_file_and_line(line, message, tmp_path) -> None:
    write_pairs(tmp_path)
    with (tmp_path / "iwslt14_de_en" / "train.tsv").open("ab") as text:
        text.write(line + b"\n")
    with pytest.raises(ValueError, match=message):
        Pairs("iwslt14_de_en", str(tmp_path), vocabulary=400, cache=str(tmp_path)).train()


def test_a_vocabulary_that_the_text_does_not_have_is_told(tmp_path) -> None:
    write_pairs(tmp_path)
    with pytest.raises(ValueError, match="vocabulary must fit .*train.tsv, got 9999"):
        Pairs("iwslt14_de_en", str(tmp_path), vocabulary=9999, cache=str(tmp_path)).train()
    assert not list(tmp_path.glob("*.model"))


class Says(torch.nn.Module):
    """Translates into what it was told."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = rows


def judged(data: Pairs, monkeypatch, change: int) -> tuple[float, float]:
    """Of translations that are the references but for a change: ours in two halves, sacrebleu's."""
    monkeypatch.setattr("harness.workloads.data.pairs.Translator", Says)
    [(inputs, labels)] = list(shard(data.test(), 0, 1))
    said = labels.clone().clamp_(min=PADDING)
    said[:, :change] = said[:, :change].flip(0)
    monkeypatch.setattr(Says, "translated", lambda self, *_: self.rows, raising=False)
    judge, half, pieces = data.judge, len(labels) // 2, data.pieces()
    parts = (slice(None, half), slice(half, None))
    sums = [judge.sums(Says(said[part]), inputs[part], labels[part]) for part in parts]
    texts = [pieces.decode(row[: row.index(END)] if END in row else row) for row in said.tolist()]
    english = dict(read(Path(data.folder) / data.name / "test.tsv"))
    wanted = [english[pieces.decode(until_end(row))] for row in inputs[:, 0].tolist()]
    return judge.quality(torch.stack(sums).sum(0)), BLEU().corpus_score(texts, [wanted]).score


def test_bleu_of_workers_together_is_sacrebleus_of_all(data, monkeypatch) -> None:
    for change in (0, 2):
        ours, theirs = judged(data, monkeypatch, change)
        assert ours == pytest.approx(theirs) and (ours == pytest.approx(100)) == (change == 0)


def test_evaluation_reports_bleu_and_the_smoothed_loss_of_real_words_alone(data) -> None:
    torch.manual_seed(0)
    of = Transformer(width=16, layers=1, heads=2, hidden=24)
    model = of.build(data.shape, data.classes).eval()
    task = Task.of(data, CPU, "float32")
    assert isinstance(task.judge, Bleu) and task.label_smoothing == data.label_smoothing
    [(inputs, labels)] = list(shard(data.test(), 0, 1))
    sums = task.tested(model, [(inputs, labels)])
    with torch.no_grad():
        logs = model(inputs).log_softmax(-1)
    real = labels != UNLABELLED
    right = logs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    expected = -(0.9 * right + 0.1 * logs.mean(-1))[real].mean().item()
    metrics = task.metrics(sums)
    assert sums[2] == real.sum() and metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert set(metrics) == {"bleu", "accuracy", "loss"} and 0 <= metrics["bleu"] <= 100
    likeliest = (logs.argmax(-1) == labels)[real].double().mean().item()
    assert metrics["accuracy"] == pytest.approx(likeliest)


def test_the_sentences_that_come_with_us_are_split_without_repetition() -> None:
    train, test = (list(read(PACKAGED / f"{name}.tsv")) for name in ("train", "test"))
    assert len(train) > 10_000 and len(test) > 500
    for side in (0, 1):
        known = {pair[side].lower() for pair in train}
        assert not [pair for pair in test if pair[side].lower() in known]
    assert len({english for _, english in train + test}) == len(train + test)
    notice = (PACKAGED / "NOTICE").read_text()
    for owner in ("PostgreSQL", "Horizon", "Wagtail", "Django Software Foundation", "Torchbox"):
        assert owner in notice
