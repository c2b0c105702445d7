"""The transformer: causal, blind to padding, cut inside its layers, also where it is evaluated."""

import pytest
import torch
from torch import nn

from compressors.activations.dct_mp import DCTMP
from compressors.activations.operator import Cut
from harness.engine.pipeline.operators import cut_in_place
from harness.engine.training.task import Task
from harness.workloads.data.pairs import BEGIN, END, PADDING
from harness.workloads.models.base import multiply_adds
from harness.workloads.models.transformer import Rectifier, Transformer, Translator, positions
from tests.test_settings import settings

WORDS, VOCABULARY = 7, 23
SMALL = Transformer(width=16, layers=6, heads=2, hidden=24)


def network(of: Transformer = SMALL) -> Translator:
    torch.manual_seed(0)
    model = of.build((2, WORDS), VOCABULARY)
    assert isinstance(model, Translator)
    return model.eval()


def pairs(n: int = 3) -> torch.Tensor:
    source = torch.Generator().manual_seed(1)
    found = torch.randint(3, VOCABULARY, (n, 2, WORDS), generator=source)
    found[:, 1, 0] = BEGIN
    return found


def test_the_papers_size() -> None:
    """6 + 6 layers of 512 and 1024; embeddings of both languages, those of English also scores."""
    with torch.device("meta"):
        model = Transformer().build((2, 100), 10_000)
    attention, norm = 4 * (512 * 512 + 512), 2 * 512
    forward = 2 * 512 * 1024 + 512 + 1024
    expected = 6 * (attention + forward + 2 * norm) + 6 * (2 * attention + forward + 3 * norm)
    assert sum(each.numel() for each in model.parameters()) == expected + 2 * 512 * 10_000


def test_multiply_adds_of_a_layer_counted_by_hand() -> None:
    counts = multiply_adds(Transformer(width=16, layers=1, heads=2, hidden=24).build(
        (2, WORDS), VOCABULARY), (2, WORDS))  # fmt: skip
    assert counts["scores.weight"] == WORDS * 16 * VOCABULARY
    assert counts["encoder.0.self_attn.in_proj_weight"] == WORDS * 3 * 16 * 16
    assert counts["decoder.0.multihead_attn.out_proj.weight"] == WORDS * 16 * 16
    assert counts["decoder.0.linear1.weight"] == WORDS * 16 * 24
    assert counts["source.weight"] == WORDS * 16


def test_no_word_sees_those_that_follow_it() -> None:
    model, before = network(), pairs()
    after = before.clone()
    after[:, 1, 4:] = 3 + (after[:, 1, 4:] - 2) % (VOCABULARY - 3)
    assert torch.allclose(model(before)[:, :4], model(after)[:, :4], atol=1e-6)
    assert not torch.allclose(model(before)[:, 4:], model(after)[:, 4:], atol=1e-3)


def test_padding_behind_a_sentence_changes_nothing() -> None:
    model, short = network(), pairs()[:, :, :4]
    padded = nn.functional.pad(short, (0, 3), value=PADDING)
    assert torch.allclose(model(short), model(padded)[:, :4], atol=1e-5)


def test_a_sentence_without_words_has_finite_scores() -> None:
    assert network()(torch.zeros(2, 2, WORDS)).isfinite().all()


def test_words_are_told_apart_by_their_places() -> None:
    table = positions(50, 16, torch.device("cpu"))
    assert table[0, :8].eq(0).all() and table[0, 8:].eq(1).all()
    assert torch.cdist(table, table).fill_diagonal_(1).min() > 0.1
    assert torch.allclose(table.square().sum(1), torch.full((50,), 8.0))


def test_what_is_translated_is_the_likeliest_word_each_time() -> None:
    model, source = network(), pairs()[:, 0]
    found = model.translated(source, longest=5, beam=1)
    assert found.shape[0] == 3 and 1 <= found.shape[1] <= 5
    begun = torch.cat([torch.full((3, 1), BEGIN), found[:, :-1]], dim=1)
    scores = model.decoded(begun, *model.encoded(source))
    for row, likeliest in zip(found.tolist(), scores.argmax(-1).tolist(), strict=True):
        length = row.index(END) + 1 if END in row else len(row)
        assert row[:length] == likeliest[:length]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_goes_on_when_others_of_its_batch_have_ended(beam: int) -> None:
    model, source = network(), pairs(8)[:, 0]
    with torch.no_grad():
        model.scores.weight[END] *= -4  # or none would end
    together = [until_end(row) for row in model.translated(source, 9, beam).tolist()]
    alone = [until_end(model.translated(one[None], 9, beam)[0].tolist()) for one in source]
    assert together == alone and len({len(row) for row in alone}) > 1


def until_end(row: list[int]) -> list[int]:
    return row[: row.index(END)] if END in row else row


@pytest.mark.parametrize("training", [True, False])
def test_a_cut_is_at_work_once_a_layer_in_training_and_in_evaluation(training: bool) -> None:
    """Torch's layers would fuse what they know, and leave out what is behind it."""
    model, calls = network(), []
    for layer in model.modules():
        if isinstance(layer, Rectifier):
            layer.register_forward_hook(lambda *each: calls.append(each[2].shape))
    model.train(training)
    with torch.set_grad_enabled(training):
        model(pairs())
    assert calls == [(3, WORDS, 24)] * 12


@pytest.mark.parametrize(("stages", "where"), [
    (2, ["encoder.4"]),
    (3, ["encoder.4", "decoder.4"]),
    (5, ["encoder.4", "decoder.4", "encoder.2", "decoder.2"]),
])  # fmt: skip
def test_cuts_are_where_the_paper_has_them(stages: int, where: list[str]) -> None:
    model = network()
    names = {layer: name for name, layer in model.named_modules()}
    assert [names[layer] for layer in model.inner_cuts(stages)] == [
        f"{w}.activation" for w in where
    ]


CUT = ("model=transformer_small", "dataset=catalogues", "parallel=split", "parallel.stages=3",
       "activations=dct_mp", "activations.density=0.25", "workers=1")  # fmt: skip


def test_of_every_word_as_much_crosses_a_cut(monkeypatch) -> None:
    """Rows are words: of 24 numbers 6 or fewer are left behind the cut, forward and backward."""
    model, seen = network(), []
    cuts = cut_in_place(settings(*CUT).run(), model, (2, WORDS))
    assert all(isinstance(cut, Cut) and isinstance(cut.scheme, DCTMP) for cut in cuts)
    layer = model.encoder[4].linear2
    layer.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0].detach()))
    model(pairs())
    [behind] = seen
    kept = behind.count_nonzero(dim=-1)
    assert behind.shape == (3, WORDS, 24) and kept.max() <= 6 and kept.min() >= 1


def test_what_was_evaluated_had_its_cuts() -> None:
    model, batch = network(), pairs()
    task = Task("bleu", torch.device("cpu"), label_smoothing=0.1)
    labels = batch[:, 1].roll(-1, dims=1)
    without = task.tested(model, [(batch, labels)])
    cut_in_place(settings(*CUT, "activations.density=0.05").run(), model, (2, WORDS))
    assert task.tested(model, [(batch, labels)])[1] != without[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Transformer(width=20, heads=4), "width must be a multiple of 2 heads = 8, got 20"),
        (lambda: Transformer(layers=0), "layers must be >= 1, got 0"),
        (lambda: Transformer(dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
        (lambda: SMALL.build((35,), 9), r"takes pairs of sentences \(2, words\), .* of \(35,\)"),
        (lambda: network().inner_cuts(4), "stages of a transformer of 6 .* 2, 3 or, .* 5, got 4"),
        (lambda: cut_in_place(settings(*CUT, "parallel.cuts=[1,2]").run(), network(), (2, WORDS)),
         r"cuts of a transformer must be null, got \[1, 2\]"),
    ],
)  # fmt: skip
def test_refuses_with_value_and_range(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
