"""Rows that others measured: read with care, predicted by running, never pooled."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.calibrate import testbed
from harness.fidelity import __main__ as command
from harness.fidelity.assess import assess_rows, distance
from harness.fidelity.bench import Bench, bench_files, load_bench
from harness.fidelity.collectives import RowPredictor, _children
from harness.fidelity.measurement import ROW_COLUMNS, BadMeasurement, Measurement, Selector, read

ROWS = Path("papers/hardware/rows.csv")
ROW = Measurement(
    "me", "mine", "", "", "1 Gbit/s", "4", "gloo", "time_ms", 1.0, "ms", "here", text="1.0",
    stack="gloo", operation="all_reduce", rtt_ms=20.0, rate_mbit=1000.0, bytes=1 << 27,
    statistic="median",
)  # fmt: skip
BENCH = Bench("mine", "Mine", takes=(Selector({"id": "mine"}),), backend="gloo")


def written(folder, *lines):
    path = folder / "rows.csv"
    path.write_text("\n".join([",".join(ROW_COLUMNS), *lines]))
    return path


def line(**changes):
    told = ROW._replace(**changes)._asdict() | {"source": ROW.paper}
    return ",".join("" if told[name] is None else str(told[name]) for name in ROW_COLUMNS)


@pytest.mark.parametrize(("changes", "named"), [
    ({"workers": 1}, "column workers"),
    ({"workers": "many"}, "column workers"),
    ({"value": "nan"}, "column value"),
    ({"value": None}, "column value"),
    ({"bytes": "1e99"}, "column bytes"),
    ({"rtt_ms": -1}, "column rtt_ms"),
    ({"rate_mbit": "inf"}, "column rate_mbit"),
    ({"method": "a,b"}, "must have 15 columns"),
])  # fmt: skip
def test_a_bad_row_is_named(changes, named, tmp_path):
    with pytest.raises(BadMeasurement, match=f"line 2.*{named}"):
        read(written(tmp_path, line(**changes)))


def test_what_is_read_is_what_was_written(tmp_path):
    found = read(written(tmp_path, line(), line(rtt_ms=None, rate_mbit=None)))
    assert found == [ROW, ROW._replace(rtt_ms=None, rate_mbit=None)]


def test_other_files_are_no_rows(tmp_path):
    assert all(row.operation for row in read(ROWS))
    assert not any(cell.operation for cell in read("papers/covap/published.csv"))
    big = tmp_path / "big.csv"
    big.write_text(",".join(ROW_COLUMNS) + "\n" * (1 << 23))
    with pytest.raises(BadMeasurement, match="bytes"):
        read(big)


def test_shipped_rows_are_all_taken_by_one_testbed_that_names_at_most_four():
    rows = [row for file in ("rows", "regions", "here") for row in read(ROWS.with_stem(file))]
    known = list(map(load_bench, bench_files()))
    for row in rows:
        assert sum(bench.has(row) for bench in known) == 1, row
    for bench in known:
        inputs = testbed.inputs_of(bench, rows)
        assert len(bench.fit) <= len(inputs) <= 4 and set(bench.constants) == set(bench.fit)


def test_collectives_are_those_of_the_backend():
    gloo, nccl = BENCH, replace(BENCH, backend="nccl", network={"segment_bytes": None})
    row = ROW._replace(rtt_ms=0.0, operation="broadcast")
    once_s = 1000 * row.bytes / 0.956 / 125e6
    assert RowPredictor(nccl).predict(row) == pytest.approx(once_s)
    for workers, copies in ((2, 1), (4, 3), (8, 6), (16, 10)):  # that one path sends in a row
        predicted = RowPredictor(gloo).predict(row._replace(workers=str(workers)))
        assert predicted == pytest.approx(copies * once_s)
    reduced = RowPredictor(gloo).predict(row._replace(operation="reduce"))
    assert reduced == pytest.approx(126 / 128 * once_s + 3 / 4 * once_s)
    far = ROW._replace(rtt_ms=100.0)
    assert RowPredictor(gloo).predict(far) > 2 * RowPredictor(nccl).predict(far)


def test_what_comes_in_has_a_rate_of_its_own():
    egress = RowPredictor(replace(BENCH, ingress_mbit=10_000.0))
    row = ROW._replace(rtt_ms=0.0, operation="reduce", workers="8")
    once_ms = 1000 * row.bytes / 0.956 / 125e6
    scattered_ms = 126 / 128 * once_ms  # all segments of 1 MiB but two
    assert egress.predict(row) == pytest.approx(scattered_ms + once_ms / 8)  # a part each
    both = RowPredictor(BENCH).predict(row)
    assert both == pytest.approx(scattered_ms + 7 / 8 * once_ms)  # all parts into one link
    far = ROW._replace(rtt_ms=40.0)
    assert egress.predict(far) == pytest.approx(RowPredictor(BENCH).predict(far))  # a ring


def test_gloos_reduce_sends_its_parts_around_again_where_they_have_many_segments():
    row = ROW._replace(rtt_ms=0.0, operation="reduce", workers="2")
    for mib, sent_mib in ((16, 14 + 8), (6, 4 + 3), (4, 2 + 2)):  # ring and gather
        sent_ms = 1000 * sent_mib * (1 << 20) / 0.956 / 125e6
        predicted = RowPredictor(BENCH).predict(row._replace(bytes=mib << 20))
        assert predicted == pytest.approx(sent_ms)


def test_a_receiver_has_a_window_of_its_own():
    bench = replace(BENCH, constants={"window_bytes": 4e6, "window_bytes.Oregon": 1e6})
    row = ROW._replace(operation="send", workers="2", rtt_ms=200.0, metric="rate_mbit")
    into, out_of = (RowPredictor(bench).predict(row._replace(network=told))
                    for told in ("Tokyo to Oregon", "Oregon to Tokyo"))  # fmt: skip
    assert into == pytest.approx(1e6 * 8e-6 / 0.2, rel=0.02)
    assert out_of == pytest.approx(4 * into, rel=0.02)


def test_a_loss_is_read_of_the_network_and_bounds_a_flow():
    lossy = ROW._replace(network="1 Gbit/s, round trip 20 ms, loss 0.1 %")
    assert (ROW.loss, lossy.loss) == (0.0, 0.001)
    link = BENCH.link_of(lossy).link(0.0, 0, "up")
    assert 1 - (1 - link.loss) ** 2 == pytest.approx(0.001) and link.delay_ms == 5.0
    assert RowPredictor(BENCH).predict(lossy) > 5 * RowPredictor(BENCH).predict(ROW)


@pytest.mark.parametrize("workers", [2, 3, 5, 8, 13])
def test_a_tree_reaches_every_rank_once(workers):
    reached = [child for rank in range(workers) for child in _children(rank, workers)]
    assert sorted(reached) == list(range(1, workers))


def test_steps_follow_from_computation_and_exchange():
    bench = replace(BENCH, constants={"compute_s": 0.5})
    of_step = {"operation": "all_reduce fp32", "method": "diloco H=8"}
    blocked_s = RowPredictor(bench).predict(ROW._replace(metric="blocked_s", **of_step))
    step_s = RowPredictor(bench).predict(ROW._replace(metric="step_s", **of_step))
    assert step_s == pytest.approx(0.5 + blocked_s / 8)
    share = RowPredictor(bench).predict(ROW._replace(metric="compute_utilisation", **of_step))
    assert share == pytest.approx(0.5 / step_s)


def test_ddp_sends_every_gradient_and_its_buffers_first():
    bench = replace(BENCH, model="LlamaDebug", constants={"compute_s": 0.02})
    row = ROW._replace(operation="DDP in buckets (step)", metric="blocked_s", rtt_ms=None)
    row = row._replace(rate_mbit=50.0)
    ring_s = 2 * 3 / 4 * 4 * 30_846_720 / 0.956 / 6.25e6
    bare_s = RowPredictor(bench).predict(row)
    assert bare_s == pytest.approx(ring_s, rel=0.01)
    broadcast_s = 10e6 / 0.956 / 6.25e6
    told = bench.with_constants({"buffers_bytes": 10e6})
    assert RowPredictor(told).predict(row) - bare_s == pytest.approx(broadcast_s)


def test_a_fit_finds_what_made_its_inputs():
    made = {"efficiency": 0.8, "window_bytes": 2e6, "segment_s": 0.003}
    truth = BENCH.with_constants(made)
    rows = [ROW._replace(operation="send", workers="2", rtt_ms=0.0, network="a"),
            ROW._replace(operation="send", workers="2", rtt_ms=200.0, network="b"),
            ROW._replace(network="c"),
            ROW._replace(network="d", workers="8")]  # fmt: skip
    rows = [row._replace(value=RowPredictor(truth).predict(row)) for row in rows]
    names = tuple(Selector({"network": each}) for each in "abc")
    bench = replace(BENCH, inputs=names, fit=tuple(made))
    found = testbed.fitted(bench, rows)
    assert found.constants == pytest.approx(made, rel=1e-3)
    results = assess_rows(rows, [found])
    assert [each.standing for each in results] == [*["input"] * 3, "counts"]
    assert distance(results, True).cells == 1 and distance(results, True).worst < 0.1


def test_a_fit_needs_its_inputs_and_each_once():
    one = Selector({"network": "1 Gbit/s"})
    bench = replace(BENCH, inputs=(one,), fit=("efficiency",))
    with pytest.raises(BadMeasurement, match="one row, got 0"):
        testbed.fitted(bench, [ROW._replace(network="x")])
    with pytest.raises(BadMeasurement, match="one row, got 2"):
        testbed.fitted(bench, [ROW, ROW])
    with pytest.raises(BadMeasurement, match="at least 2 rows"):
        testbed.fitted(replace(bench, fit=("efficiency", "segment_s")), [ROW])


def test_a_testbed_of_five_inputs_is_refused(tmp_path):
    text = Path("papers/hardware/testbeds/l40s.yaml").read_text()
    path = tmp_path / "l40s.yaml"
    path.write_text(text.replace("inputs:", "inputs:\n  - {network: x}", 1))
    with pytest.raises(BadMeasurement, match="at most 4"):
        load_bench(path)
    path.write_text(text.replace("buffers_bytes]", "luck]").replace("buffers_bytes,", "luck,"))
    with pytest.raises(BadMeasurement, match="luck"):
        load_bench(path)
    path.write_text("title: nothing")
    with pytest.raises(BadMeasurement, match="not a testbed"):
        load_bench(path)


def call(monkeypatch, path, *more):
    monkeypatch.setattr(sys, "argv", ["fidelity", "--cells", str(path), *map(str, more)])
    return command.main()


def test_rows_are_reported_apart(tmp_path, monkeypatch, capsys):
    picked = [ROWS.read_text().splitlines()[n] for n in (0, 130, 131)]
    path = tmp_path / "some.csv"
    path.write_text("\n".join(picked))
    assert call(monkeypatch, path, "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "aws_gloo" in printed and "pooled" not in printed
    assert len((tmp_path / "out" / "fidelity.csv").read_text().splitlines()) == 3


def test_a_file_that_cannot_be_read_ends_with_its_line(tmp_path, monkeypatch, capsys):
    path = written(tmp_path, line(id="nobody"))
    assert call(monkeypatch, path) == 0
    assert "1 rows are of no testbed" in capsys.readouterr().out
    path.write_text(path.read_text().replace("1.0", "nan"))
    assert call(monkeypatch, path) == 2
    assert "line 2, column value" in capsys.readouterr().err
