"""Cells from a CSV, and what is wrong with one."""

import pytest

from harness.fidelity.measurement import (
    COLUMNS,
    BadMeasurement,
    Selector,
    Unpredictable,
    rate_mbit,
    read,
)

HEADER = ",".join(COLUMNS)
ROW = "covap,covap_table7,Bert,,30Gbps,64,FP16,speedup_vs_1gpu,40.5,x,table"


@pytest.fixture
def write(tmp_path):
    def write(*lines: str):
        path = tmp_path / "cells.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def test_a_cell_has_all_columns(write):
    (cell,) = read(write(HEADER, ROW))
    assert (cell.model, cell.method, cell.value, cell.text) == ("Bert", "FP16", 40.5, "40.5")


def test_columns_may_be_in_any_order_and_more(write):
    names, values = HEADER.split(","), ROW.split(",")
    lines = [",".join([*reversed(names), "note"]), ",".join([*reversed(values), "mine"])]
    assert read(write(*lines)) == read(write(HEADER, ROW))


@pytest.mark.parametrize("text", ["N/A", "NA", "", "two"])
def test_what_is_no_number_was_not_told(write, text):
    (cell,) = read(write(HEADER, ROW.replace("40.5", text)))
    assert cell.value is None


@pytest.mark.parametrize(("lines", "message"), [
    ([HEADER.replace("metric,", ""), ROW], "line 1: column metric is missing"),
    ([], "line 1: column paper"),
    ([HEADER, ROW, ROW + ",more"], "line 3: must have 11 columns, got 12"),
    ([HEADER, ROW.replace("40.5", "40,5")], "line 2: must have 11 columns, got 12"),
    ([HEADER, ROW.replace("40.5", "40.5.1")], "line 2, column value: .*got '40.5.1'"),
    ([HEADER, ROW.replace("covap,", "cowap,", 1)], "line 2, column paper: .*got 'cowap'"),
])  # fmt: skip
def test_a_bad_csv_is_told_by_line_and_column(write, lines, message):
    with pytest.raises(BadMeasurement, match=message):
        read(write(*lines), ["covap"])


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_figure_is_finite(write, value):
    with pytest.raises(BadMeasurement, match="line 2, column value"):
        read(write(HEADER, ROW.replace("40.5", value)))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadMeasurement, match="No such file"):
        read(tmp_path / "none.csv")


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "cells.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadMeasurement, match="UTF-8"):
        read(tmp_path / "cells.csv")


def test_selectors_know_their_columns(write):
    (cell,) = read(write(HEADER, ROW))
    assert Selector({"model": "Bert"}).takes(cell)
    assert not Selector({"model": "Bert", "method": "COVAP"}).takes(cell)
    with pytest.raises(ValueError, match="modell"):
        Selector({"modell": "Bert"})


def test_rates():
    names = ("500Mbps", "2.5Gbps", "10GbE", "100GbIB", "30 Gbit/s", "")
    assert [rate_mbit(name) for name in names] == [500, 2500, 10_000, 100_000, 30_000, None]
    with pytest.raises(Unpredictable, match="'dynamic'"):
        rate_mbit("dynamic")
