"""A model predicted from the others of its testbed alone."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from harness.fidelity import bench as beds
from harness.fidelity.layers import least_s, multiply_adds, parameters
from harness.fidelity.left_out import _without, leave_one_out, show_left_out
from harness.fidelity.measurement import Measurement, Selector
from harness.fidelity.predictor import Predictor

RATE, TRUE_EFFICIENCY = 1e12, 0.8  # multiply-adds/s of backward; of a link of 1 GB/s
MODELS = ("BERT-Base", "BERT-Large")


def compute(model):
    return beds.Compute(multiply_adds(model) / RATE / 2, multiply_adds(model) / RATE, None)


class Plain(Predictor):
    paper, title = "p", "P"

    @property
    def _rules(self):
        return {"step": lambda c: self._compute_s(c) + self._sent_s(c), "sent": self._sent_s}

    def _compute_s(self, cell):
        found = self.bench.compute(cell.model)
        return found.forward_s + found.backward_s

    def _sent_s(self, cell):
        return 4 * parameters(cell.model) / (1e9 * self.bench["efficiency"])


def cell(model, metric, efficiency=TRUE_EFFICIENCY):
    sent_s = 4 * parameters(model) / (1e9 * efficiency)
    each = compute(model)
    value = sent_s + (metric == "step") * (each.forward_s + each.backward_s)
    return Measurement("p", "t", model, "", "", "", "", metric, value, "s", "", f"{value}")


BED = beds.Bench("p", "", constants={"efficiency": 0.5},
                 computes={("bertbase", ""): compute("BERT-Base"),
                           ("bertlarge", ""): compute("BERT-Large")},
                 sources={"efficiency": "t, BERT-Base, what it sent"},
                 inputs=(Selector({"metric": "sent"}),))  # fmt: skip
CELLS = [cell("BERT-Base", "sent", 0.5), cell("BERT-Large", "sent")]
CELLS += [cell(model, "step") for model in MODELS]


def test_what_only_its_own_cells_told_is_told_by_the_others():
    base, large = leave_one_out(Plain, BED, CELLS)
    assert (base.model, large.model) == ("bertbase", "bertlarge")
    [fitted], [blind] = base.fitted, base.blind  # the step alone: "sent" is an input
    assert fitted.error > 0.1  # by an efficiency of 0.5
    assert blind.error == pytest.approx(0.0, abs=2e-3) and not base.kept
    [same], [too] = large.fitted, large.blind
    assert same.predicted == pytest.approx(too.predicted)  # nothing was read from its cells


def test_a_constant_that_no_other_tells_is_named():
    alone = [each for each in CELLS if (each.model, each.metric) != ("BERT-Large", "sent")]
    base, _ = leave_one_out(Plain, BED, alone)
    assert base.kept == ["efficiency"]
    [fitted], [blind] = base.fitted, base.blind
    assert fitted.predicted == pytest.approx(blind.predicted)
    console = Console(width=200, record=True, file=StringIO())
    show_left_out(console, [base])
    said = console.export_text()
    assert "p, bertbase: 1 cells, fitted" in said and "only its own cells tell efficiency" in said


def test_a_computation_read_from_the_model_itself_tells_nothing():
    bed = replace(BED, sources={**BED.sources, ("bertlarge", ""): "BERT-Base's, by multiply-adds"})
    told, kept = _without(Plain, bed, "bertbase", CELLS)
    assert kept == ["computation"] and told.computes == bed.computes


def test_where_batches_are_not_told_images_tell_of_images():
    computes = {(model, ""): beds.Compute(0.1, 0.2, None) for model in ("vgg19", "bertlarge")}
    bed = replace(BED, computes=computes | {("resnet101", ""): beds.Compute(1.0, 2.0, None)})
    told, kept = _without(Plain, bed, "resnet101", CELLS)
    ratio = multiply_adds("resnet101") / multiply_adds("vgg19")
    assert told.computes["resnet101", ""].forward_s == pytest.approx(0.1 * ratio) and not kept
    _, kept = _without(Plain, bed, "bertlarge", CELLS)
    assert kept == ["computation"]  # of texts there is no other
    batched = {key: each._replace(batch=32) for key, each in bed.computes.items()}
    _, kept = _without(Plain, replace(bed, computes=batched), "bertlarge", CELLS)
    assert not kept


def test_computation_goes_by_bytes_where_they_take_longer():
    sheet = {"flops": 1e12, "memory_bytes_per_s": 1e9}
    computes = {("vgg19", ""): beds.Compute(0.1, 0.2, 8), ("resnet101", ""): beds.Compute(1, 2, 4)}
    bed = replace(BED, computes=computes, constants={**BED.constants, **sheet})
    found = _without(Plain, bed, "resnet101", CELLS)[0].computes["resnet101", ""]
    ratio = least_s("resnet101", 1e12, 1e9) / least_s("vgg19", 1e12, 1e9) * 4 / 8
    assert (found.forward_s, found.backward_s) == pytest.approx((0.1 * ratio, 0.2 * ratio))


def test_a_constant_is_fitted_to_the_table_that_it_was_read_from():
    other = [each._replace(id="u", value=5 * each.value) for each in CELLS if each.metric == "sent"]
    told, _ = _without(Plain, BED, "bertbase", [*CELLS, *other])
    assert told["efficiency"] == pytest.approx(TRUE_EFFICIENCY, rel=2e-3)
    unmet = beds.Omission(Selector({"id": "t", "model": "BERT-Large"}), "it cannot be met")
    bed = replace(
        BED, omissions=(unmet,), inputs=(Selector({"metric": "sent", "model": "BERT-Base"}),)
    )
    told, kept = _without(Plain, bed, "bertbase", CELLS)
    assert kept == ["efficiency"]
