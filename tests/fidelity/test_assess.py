"""What the cost model reaches against the papers, and that it has not seen what it predicts."""

import re
import sys
from collections import Counter
from statistics import mean

import pandas as pd
import pytest

from harness.fidelity import __main__ as command
from harness.fidelity.assess import assess, distance, frame, orders
from harness.fidelity.layers import tensors
from harness.fidelity.measurement import COLUMNS, Measurement
from harness.fidelity.predictor import predictors
from harness.fidelity.replays import ReplayedMethod, ReplayJob, iteration
from tests.fidelity.test_command import LAST

# two hundred replays, 90 s of one core, which this process keeps
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
FITTED = "acp_fig5_text"  # three cells tell one latency


@pytest.fixture(scope="module")
def cells() -> list[Measurement]:
    return [cell for each in predictors().values() for cell in each.published()]


@pytest.fixture(scope="module")
def found(cells):
    return assess(cells)


def of(found, name):
    return distance([row for row in found if row.cell.id == name], counting=True)


def test_pooled_errors(found):
    counted, everything = distance(found, True), distance(found, False)
    assert counted.median <= 8 and counted.p90 <= 30
    assert everything.median <= 12 and everything.p90 <= 70
    assert counted.cells >= 60
    printed = distance(found, True, printed=True)
    assert printed.median <= 10 and printed.p90 <= 35


@pytest.mark.parametrize(
    ("name", "median", "p90"),
    [("acp_table3", 5, 12), ("netsense_table1", 5, 15), ("covap_table7", 20, 35)],
)
def test_errors_of_the_main_tables(found, name, median, p90):
    reached = of(found, name)
    assert reached.cells >= 5
    assert reached.median <= median and reached.p90 <= p90


def test_methods_come_in_the_published_order(found):
    rhos = orders(found)
    assert len(rhos) == 5
    assert min(rhos.values()) >= 0.75


def test_predictions_do_not_look_at_what_they_predict(cells, found):
    changed = [
        row.cell._replace(value=7.0, text="7") if row.standing != "input" else row.cell
        for row in found
    ]
    others = [cell for cell in cells if cell not in {row.cell for row in found}]
    again = {row.cell[:8]: row.predicted for row in assess([*changed, *others])}
    for row in found:
        assert again[row.cell[:8]] == row.predicted, row.cell


def test_inputs_do_not_count(found):
    inputs = [row for row in found if row.standing == "input"]
    counted = {row.cell for row in found if row.standing == "counts"}
    assert inputs and not counted & {row.cell for row in inputs}
    assert distance(inputs, True).cells == distance(inputs, False).cells == 0
    assert all(row.why for row in found if row.standing != "counts")


def test_constants_are_what_their_inputs_say(found):
    """A constant read from one cell gives that cell back."""
    for row in found:
        trained = row.cell.metric == "S_LS"  # is of a run apart, below
        if row.why == "a constant was read from it" and row.cell.id != FITTED and not trained:
            assert abs(row.printed_error) < 0.004, row.cell  # of a part of a model: whole rows


def test_a_latency_between_three_cells(found):
    """Their geometric mean is the constant, so they are missed to both sides."""
    bed = predictors()["acpsgd"].own_bench()
    cluster = bed.cluster()
    tiny = mean(
        sum(4 * t.elements if not t.matrix else 16 * min(4, *t.matrix) * t.matrix[s] / 4 for t in k)
        for s in (0, 1)
        for k in (tensors("ResNet-50"),)
    )
    per_byte_s = 2 * 31 / 32 / (cluster.efficiency * cluster.rate_mbit * 125_000)
    dense = 0.169
    left = [
        (0.243 - dense) / 160,
        (0.0559 - tiny * per_byte_s) / 161,
        0.0023 - tiny * per_byte_s,
    ]
    latency_s = (left[0] * left[1] * left[2]) ** (1 / 3)
    assert 62 * bed["alpha_s"] == pytest.approx(latency_s, rel=0.02)
    errors = [
        row.error for row in found if row.cell.id == FITTED and row.cell.metric == "allreduce_time"
    ]
    assert min(errors) < 0 < max(errors)


def test_compute_times_that_are_told_by_ratios():
    bed = predictors()["covap"].own_bench()

    def comm_over(model: str) -> tuple[float, float]:
        compute = bed.compute(model, "trained")
        comm_s = iteration(
            ReplayJob(model, compute, bed.cluster()), ReplayedMethod("dense.Dense")
        ).comm_s
        return comm_s / (compute.forward_s + compute.backward_s), comm_s / compute.backward_s

    assert 1 + comm_over("Bert")[0] == pytest.approx(3.08, rel=1e-4)  # table I's S_LS
    assert comm_over("GPT-2")[1] == pytest.approx(3.5, rel=1e-4)  # its CCR
    a40 = predictors()["netsenseml"].own_bench()
    adds = [sum(t.multiply_adds for t in tensors(m)) for m in ("VGG16", "ResNet18")]
    ratio = a40.compute("VGG16").forward_s / a40.compute("ResNet18").forward_s
    assert ratio == pytest.approx(adds[0] / adds[1], rel=1e-3)


def test_every_selector_of_a_testbed_finds_a_cell(cells):
    for each in predictors().values():
        bed = each.own_bench()
        told = [*bed.inputs, *bed.follows, *bed.repeats,
                *(omitted.cells for omitted in bed.omissions)]  # fmt: skip
        for selector in told:
            assert any(selector.takes(cell) for cell in cells), selector


def test_a_percentage_of_change_is_compared_as_a_factor(found):
    (row,) = (r for r in found if (r.cell.id, r.cell.method) == ("acp_fig12", "S-SGD"))
    assert row.cell.value == 10
    assert row.error == pytest.approx((100 + row.predicted) / 110 - 1)
    assert row.printed_error == pytest.approx(row.predicted / 10 - 1)


def test_each_timing_cell_is_there_once(found):
    counts = Counter(row.cell[:8] for row in found)
    assert max(counts.values()) == 1
    assert len(frame(found)) == len(found)


def test_further_cells_have_the_same_constants(cells, found):
    for metric in ("speedup_vs_1gpu", "total_training_time"):
        known = next(r for r in found if (r.cell.method, r.cell.metric) == ("COVAP", metric))
        new = known.cell._replace(id="mine", value=1.0, text="1")
        told = [cell for cell in cells if cell.id == known.cell.id]
        row = assess(told, [new])[-1]
        assert row.further and row.predicted == known.predicted and row.standing == "counts"


@pytest.mark.parametrize(("changes", "message"), [
    ({"model": "AlexNet"}, "AlexNet"),
    ({"method": "Magic"}, "Magic"),
    ({"network": "slow"}, "slow"),
])  # fmt: skip
def test_a_further_cell_that_cannot_be_predicted_says_why(found, changes, message):
    for paper in ("covap", "acpsgd", "netsenseml"):
        metrics = ("speedup_vs_1gpu", "iteration_time_mean", "training_throughput")
        known = next(r for r in found if r.cell.paper == paper and r.cell.metric in metrics)
        (row,) = assess([], [known.cell._replace(**changes)])
        assert row.predicted is None and row.standing == "left out"
        assert message in row.why


def test_the_command_prints_and_writes_cells_distances_and_a_figure(tmp_path, monkeypatch, capsys):
    cells = tmp_path / "cells.csv"
    row = "netsenseml,netsense_table2,VGG16,,5Gbps,8,TopK-0.1,training_throughput,90,/s,table"
    cells.write_text(f"{','.join(COLUMNS)}\n{row}\n")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["fidelity", "--cells", str(cells), "--out", str(out)])
    assert command.main() == 0
    told = capsys.readouterr()
    assert not told.err
    lines = told.out.splitlines()
    assert re.fullmatch(LAST, lines[-1])
    assert any(line.startswith("further cells") and "over 1 cells" in line for line in lines)
    assert "netsense_table2" in told.out
    written = pd.read_csv(out / "fidelity.csv", keep_default_na=False)
    assert list(written) == [
        *COLUMNS,
        *("predicted", "error_percent", "printed_error_percent", "standing", "why", "further"),
    ]
    assert written.further.sum() == 1
    counted = ((written.standing == "counts") & ~written.further).sum()
    assert lines[-1].endswith(f"over {counted} cells")
    assert (out / "fidelity.svg").stat().st_size
