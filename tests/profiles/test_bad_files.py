"""Files that are no trace: each kind of bad line is a ValueError that names file and line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from harness.config.settings import BadSetting, Settings
from profiles.mahimahi import Mahimahi
from profiles.trace import Trace

TRIED = given_settings(
    max_examples=40, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

COLUMNS = ["time_s", "rate_mbit", "delay_ms", "jitter_ms", "loss", "reorder"]
HEADER = ",".join(COLUMNS)
NO_NUMBER = st.sampled_from(["", "fast", "nan", "inf", "-inf", "1_0", "0x10", "1,5", "1e", "--1",
                             "\u0661", "1 2", "None", "#1"])  # fmt: skip
OUTSIDE = {
    "time_s": st.sampled_from(["-1", "1e10", "1e999"]),
    "rate_mbit": st.sampled_from(["0", "-5", "1000001", "1e999"]),
    "delay_ms": st.sampled_from(["-1", "60001", "1e999"]),
    "jitter_ms": st.sampled_from(["-1", "11", "1e999"]),  # above the row's delay
    "loss": st.sampled_from(["-0.1", "1", "1.5"]),
    "reorder": st.sampled_from(["-0.1", "1", "1.5"]),
}
ROWS = st.integers(2, 8)


def good(rows: int) -> list[list[str]]:
    return [[str(1.5 * place), "20", "10", "2", "0.01", "0"] for place in range(rows)]


@st.composite
def bad_cells(draw: st.DrawFn) -> tuple[list[str], int, str]:
    """Lines with one bad value, the line's number, and the column."""
    rows = good(draw(ROWS))
    place, column = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, 5))
    name = COLUMNS[column]
    bad = draw(NO_NUMBER.filter(lambda text: "," not in text) | OUTSIDE[name])
    rows[place][column] = bad
    return [HEADER, *(",".join(row) for row in rows)], place + 2, name


@st.composite
def bad_rows(draw: st.DrawFn) -> tuple[list[str], int, str]:
    """Lines of which one has the wrong number of values, or is no row at all."""
    lines = [HEADER, *(",".join(row) for row in good(draw(ROWS)))]
    place = draw(st.integers(1, len(lines) - 2))
    line = lines[place]
    bad = [line + ",1", line.rpartition(",")[0], "", "# a comment", "\ud800", HEADER, line * 2]
    lines[place] = draw(st.sampled_from(bad))
    return lines, place + 1, "must "


@st.composite
def bad_orders(draw: st.DrawFn) -> tuple[list[str], int, str]:
    """Lines whose times do not increase from 0."""
    rows = good(draw(ROWS))
    place = draw(st.integers(0, len(rows) - 1))
    rows[place][0] = str(draw(st.floats(0.01, 9))) if place == 0 else rows[place - 1][0]
    return [HEADER, *(",".join(row) for row in rows)], place + 2, "time_s must be"


@st.composite
def bad_headers(draw: st.DrawFn) -> tuple[list[str], int, str]:
    """A header that is missing, incomplete, twice the same, or of something else."""
    comments = draw(st.integers(0, 3))
    bad = ["", "rate_mbit,time_s", "time_s", "time,rate", "time_s,rate_mbit,rate_mbit", "0,10"]
    bad += ["time_s,rate_mbit,", "time_s;rate_mbit", "time_s,rate_mbit,color", "TIME_S,RATE_MBIT"]
    lines = ["# so"] * comments + [draw(st.sampled_from(bad)), "0,10"]
    return lines, comments + 1, "header must be time_s,rate_mbit"


def refused(kind: Any, path: Path, lines: list[str], number: int, said: str) -> None:
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError) as found:
        kind(str(path))
    assert type(found.value) is ValueError
    message = str(found.value)
    assert message.startswith(f"{path}:{number}: ") and said in message
    section = {"_target_": f"{kind.__module__}.{kind.__name__}", "path": str(path)}
    with pytest.raises(BadSetting) as told:
        Settings({"profile": section}).build("profile")
    assert str(told.value) == f"profile: {message}"


@pytest.mark.parametrize("lines", [bad_cells, bad_rows, bad_orders, bad_headers])
def test_a_bad_line_of_a_trace_is_named(lines: Any, tmp_path: Path) -> None:
    @TRIED
    @given(lines())
    def every(case: tuple[list[str], int, str]) -> None:
        refused(Trace, tmp_path / "own.csv", *case)

    every()


def test_a_trace_needs_a_row(tmp_path: Path) -> None:
    refused(Trace, tmp_path / "own.csv", ["# so", HEADER], 2, "at least one row")
    refused(Trace, tmp_path / "own.csv", ["# so"], 2, "header must be")
    refused(Trace, tmp_path / "own.csv", [], 1, "header must be")


@st.composite
def bad_times(draw: st.DrawFn) -> tuple[list[str], int, str]:
    lines = [str(10 * place) for place in range(1, draw(ROWS) + 1)]
    place = draw(st.integers(0, len(lines) - 2))
    bad = ["", "-3", "1.5", "1e3", "+4", "0x1", "1 2", "1_0", "ten", "\u0663", "\ud800", "9" * 5000]
    lines[place] = draw(st.sampled_from([*bad, "86400001", "# no comments"]))
    return lines, place + 1, "must be"


@st.composite
def decreasing(draw: st.DrawFn) -> tuple[list[str], int, str]:
    times_ms = sorted(draw(st.lists(st.integers(1, 10_000), min_size=1, max_size=9)))
    last = draw(st.integers(0, times_ms[-1] - 1))
    lines = [str(time_ms) for time_ms in (*times_ms, last)]
    return lines, len(lines), f"must be >= {times_ms[-1]} ms (the line before), got {last}"


@pytest.mark.parametrize("lines", [bad_times, decreasing])
def test_a_bad_line_of_a_mahimahi_trace_is_named(lines: Any, tmp_path: Path) -> None:
    @TRIED
    @given(lines())
    def every(case: tuple[list[str], int, str]) -> None:
        refused(Mahimahi, tmp_path / "own.mahimahi", *case)

    every()


def test_a_mahimahi_trace_needs_time(tmp_path: Path) -> None:
    path = tmp_path / "own.mahimahi"
    refused(Mahimahi, path, [], 1, "must be whole ms in [0, 86400000], got ''")
    refused(Mahimahi, path, ["0"] * 3, 3, "the last line must be above 0 ms, got 0")
    path.write_text("1\n" * 100_000)
    with pytest.raises(ValueError, match="highest rate must be a number in"):
        Mahimahi(str(path))
