"""Layer tables against what the papers say of their models."""

import pytest

from harness.fidelity.layers import (
    Layers,
    least_s,
    multiply_adds,
    parameters,
    takes_images,
    tensors,
)
from harness.fidelity.measurement import Unpredictable
from harness.workloads.models.base import backward_shares

MIB = 1 << 20


@pytest.mark.parametrize(("model", "published"), [
    ("ResNet-101", 44_654_504 - 105_344),  # COVAP counts the statistics of batch norm
    ("VGG-19", 143_667_240),  # its table V; table VI is without biases
    ("Bert", 102_267_648),
    ("GPT-2", 81_894_144),
])  # fmt: skip
def test_covaps_models_have_its_parameters(model, published):
    assert parameters(model) == published


@pytest.mark.parametrize(("model", "million", "rank", "ratio"), [
    ("ResNet-50", 25.6, 4, 67),
    ("ResNet-152", 60.2, 4, 53),
    ("BERT-Base", 110.1, 32, 16.7),
    ("BERT-Large", 336.2, 32, 21),
])  # fmt: skip
def test_acp_sgds_table_1(model, million, rank, ratio):
    known = tensors(model)
    assert parameters(model) / 1e6 == pytest.approx(million, abs=0.05)
    vectors = sum(each.elements for each in known if not each.matrix)
    sent = vectors + sum(t.factor(rank, s) for t in known if t.matrix for s in (0, 1))
    assert parameters(model) / sent == pytest.approx(ratio, abs=0.6)


def test_vgg19s_weights_are_covaps_table_4():
    sizes = {t.name: t.elements for t in tensors("VGG-19") if t.matrix}
    assert sum(sizes.values()) == 143_652_544
    assert list(sizes.values())[-3:] == [102_760_448, 16_777_216, 4_096_000]
    assert list(sizes.values())[:2] == [1728, 36_864]


def test_factors_of_resnet50_are_acp_sgds():
    assert 4 * parameters("ResNet-50") / MIB == pytest.approx(97.5, abs=0.05)
    for side, size in ((0, 0.63), (1, 1.04)):
        both = 4 * sum(each.factor(4, side) for each in tensors("ResNet-50"))
        assert both / MIB == pytest.approx(size, abs=0.005)


def test_a_model_to_be_replayed_has_the_tensors_of_the_list_and_their_shares():
    known, network = tensors("BERT-Base"), Layers("BERT-Base").build((3, 8, 8), 10)
    assert [tuple(each.shape) for each in network.parameters()] == [each.shape for each in known]
    assert all(each.is_meta for each in network.parameters())
    shares = list(backward_shares(network, (3, 8, 8)).values())
    adds = [each.multiply_adds for each in known]
    assert shares == pytest.approx([each / sum(adds) for each in adds])


def test_a_narrow_model_has_fewer_rows_and_columns_and_the_shares_of_its_own():
    whole, narrow = Layers("bert_base"), Layers("narrow", of="bert_base", narrower=8)
    networks = [each.build((3, 8, 8), 10) for each in (whole, narrow)]
    for wide, thin in zip(*(each.parameters() for each in networks), strict=True):
        assert tuple(thin.shape) == tuple(max(1, side // 8) for side in wide.shape)
    sizes = [sum(p.numel() for p in each.parameters()) for each in networks]
    assert sizes[1] / sizes[0] == pytest.approx(narrow.scale((), 0), rel=0.02)
    shares = [list(backward_shares(each, (3, 8, 8)).values()) for each in networks]
    assert shares[0] == shares[1]


def test_multiply_adds_are_the_known_ones():
    assert multiply_adds("ResNet-50") == pytest.approx(4.1e9, rel=0.01)
    assert multiply_adds("VGG-19") == pytest.approx(19.6e9, rel=0.01)
    # 64 tokens through every matrix of 24 layers and the decoder, scores apart
    assert multiply_adds("BERT-Large") == pytest.approx(64 * (302e6 + 31.3e6), rel=0.02)


def test_a_layer_takes_what_its_operations_do_or_its_bytes():
    model, endless = "ResNet-50", float("inf")
    assert least_s(model, 1e12, endless) == pytest.approx(2e-12 * multiply_adds(model))
    moved = sum(each.moved for each in tensors(model))
    assert least_s(model, endless, 1e9) == pytest.approx(4e-9 * moved)
    assert least_s(model, 1e13, 1e12) < 2e-13 * multiply_adds(model) + 4e-12 * moved
    first, norm = tensors(model)[:2]
    assert first.moved == 112 * 112 * (64 + 3) and norm.moved == 2 * 112 * 112 * 64
    [decoder] = [each for each in tensors("BERT-Large") if each.name == "decoder.bias"]
    assert decoder.moved == 64 * (30528 + 1024)


def test_texts_are_no_images():
    assert [takes_images(model) for model in ("VGG-19", "resnet101", "Bert", "GPT-2")] == [
        True, True, False, False
    ]  # fmt: skip


def test_classes_change_the_last_layer_alone():
    full, few = tensors("ResNet18"), tensors("ResNet18", 100)
    assert full[:-2] == few[:-2]
    assert parameters("ResNet18") - sum(t.elements for t in few) == 900 * 513


def test_an_unknown_model_is_named():
    with pytest.raises(Unpredictable, match="resnet101.*got 'AlexNet'"):
        tensors("AlexNet")
