"""DLRM against its paper: sizes, beginning, interaction, and where it is cut."""

import pytest
import torch
from torch import nn

from harness.engine.pipeline.stages import cuts_of, parts, shapes
from harness.workloads.data.columns import CATEGORIES as CATEGORIES_OF_DATA
from harness.workloads.data.columns import COUNTS as COUNTS_OF_DATA
from harness.workloads.models.chain import Chain
from harness.workloads.models.dlrm import CATEGORIES, COLUMNS, COUNTS, DLRM, Interaction

SHAPE = (COLUMNS, 1)
ROWS = 5


def network(classes: int = 2) -> Chain:
    torch.manual_seed(0)
    return DLRM(rows=ROWS).build(SHAPE, classes)


def clicks(n: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(1)
    counts = torch.randn(n, COUNTS, generator=source)
    categories = torch.randint(ROWS, (n, CATEGORIES), generator=source)
    return torch.cat([counts, categories.float()], dim=1)[:, :, None]


def test_eight_fully_connected_layers_of_the_papers_sizes() -> None:
    layers = [layer for layer in network().modules() if isinstance(layer, nn.Linear)]
    sizes = [(layer.in_features, layer.out_features) for layer in layers]
    bottom = [(13, 512), (512, 256), (256, 64), (64, 16)]
    assert sizes == [*bottom, (367, 512), (512, 256), (256, 128), (128, 1)]
    parameters = sum(each.numel() for layer in layers for each in layer.parameters())
    assert parameters == 508_753
    [embedding] = (each for each in network().modules() if isinstance(each, nn.Embedding))
    assert embedding.weight.shape == (26 * ROWS, 16)


def test_a_rectifier_follows_every_layer_but_the_last() -> None:
    layers = list(network())
    for layer, then in zip(layers, layers[1:], strict=False):
        if isinstance(layer, nn.Linear):
            assert isinstance(then, nn.ReLU)
    assert isinstance(layers[-1], nn.Linear)


def test_weights_begin_as_its_authors_have_them() -> None:
    for layer in network().modules():
        if isinstance(layer, nn.Linear) and layer.weight.numel() > 10_000:
            m, n = layer.weight.shape
            assert layer.weight.std().item() == pytest.approx((2 / (m + n)) ** 0.5, rel=0.05)
            assert layer.bias.std().item() == pytest.approx((1 / m) ** 0.5, rel=0.3)
        if isinstance(layer, nn.Embedding):
            largest = layer.weight.abs().max().item()
            assert 0.95 * ROWS**-0.5 < largest <= ROWS**-0.5


def test_products_are_of_every_two_vectors_once() -> None:
    layer, batch = Interaction(ROWS, 16), clicks(3)
    beside = torch.randn(3, 16, generator=torch.Generator().manual_seed(2))
    found = layer(beside, batch)
    for row in range(3):
        vectors = [beside[row]]
        for column in range(CATEGORIES):
            place = column * ROWS + int(batch[row, COUNTS + column, 0])
            vectors.append(layer.embedding.weight[place])
        expected = [vectors[a] @ vectors[b] for a in range(27) for b in range(a)]
        assert torch.allclose(
            found[row], torch.cat([beside[row], torch.stack(expected)]), atol=1e-6
        )


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_preferred_cuts_are_behind_rectifiers(stages: int) -> None:
    """One and two splits as in the paper's figure 7: two layers before, two behind, of 256."""
    model = network()
    cuts = cuts_of(model, SHAPE, stages, None)
    assert len(cuts) == stages - 1
    assert all(isinstance(model[cut - 1], nn.ReLU) for cut in cuts)
    widths = [tuple(shape) for shape in shapes(model, cuts, SHAPE)]
    assert set(widths) <= {(256,), (512,)}
    counted = [sum(isinstance(layer, nn.Linear) for layer in part.modules())
               for part in parts(model, cuts)]  # fmt: skip
    if stages <= 3:
        assert counted == {2: [2, 6], 3: [2, 4, 2]}[stages]
        assert set(widths) == {(256,)}


def test_what_a_stage_needs_of_the_inputs_does_not_cross_a_cut() -> None:
    """The stages one after the other are the whole; only 256 numbers a click go on."""
    model, batch = network(), clicks(4)
    x = batch
    for part in parts(model, cuts_of(model, SHAPE, 3, None)):
        x = part(x, batch)
        assert x.shape in ((4, 256), (4, 1))
    assert torch.equal(x, model(batch))


def test_of_two_classes_there_is_one_score() -> None:
    assert network()(clicks(2)).shape == (2, 1)
    assert network(classes=7)(clicks(2)).shape == (2, 7)


def test_a_click_is_what_the_data_sets_say() -> None:
    assert (COUNTS, CATEGORIES) == (COUNTS_OF_DATA, CATEGORIES_OF_DATA)


def test_refuses_with_value_and_range() -> None:
    with pytest.raises(ValueError, match=r"dlrm takes clicks \(39, 1\), got \(1, 8, 8\)"):
        DLRM().build((1, 8, 8), 10)
    with pytest.raises(ValueError, match="rows must be >= 1, got 0"):
        DLRM(rows=0)
