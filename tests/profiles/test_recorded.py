"""Recordings people bring: times, units, missing readings, equal times, holes, and long files."""

import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from profiles.asymmetric import Asymmetric
from profiles.by_node import ByNode
from profiles.foreign import Columns, Cooked
from profiles.mahimahi import Mahimahi
from profiles.recordings import notes
from profiles.static import Static
from profiles.trace import Trace

T_MBPS = {"time_s": "t", "rate_mbit": "mbps"}


def table(folder: Path, text: str, **told: Any) -> Columns:
    path = folder / "recording.csv"
    path.write_text(text)
    return Columns(str(path), **{"end": "hold", "columns": T_MBPS} | told)


def played(profile: Trace, *times_s: float) -> list[float]:
    return [profile.link(time_s, 0, "up").rate_mbit for time_s in times_s]


TIMES = {  # each at 0, 0.5, 1 and 2 s
    "seconds": ["7", "7.5", "8", "9"],
    "epoch seconds": ["1770112798", "1770112798.5", "1770112799", "1770112800"],
    "epoch milliseconds": ["1770112798250", "1770112798750", "1770112799250", "1770112800250"],
    "epoch microseconds": ["1770112798250000", "1770112798750000", "1770112799250000",
                           "1770112800250000"],
    "ISO 8601": ["2026-02-03T09:59:59", "2026-02-03T09:59:59.5", "2026-02-03T10:00:00.000000",
                 "2026-02-03T10:00:01"],
    "a space and a zone": ["2026-12-31 23:59:59Z", "2026-12-31 23:59:59.500Z",
                           "2027-01-01 00:00:00Z", "2027-01-01 00:00:01Z"],
    "a change of the hour": ["2026-03-29T01:59:58.5+01:00", "2026-03-29T01:59:59+01:00",
                             "2026-03-29T01:59:59.5+01:00", "2026-03-29T03:00:00.5+02:00"],
    "an hour twice": ["2026-10-25T02:59:59.5+02:00", "2026-10-25T02:00:00+01:00",
                      "2026-10-25T02:00:00.5+01:00", "2026-10-25T02:00:01.5+01:00"],
    "times of day over midnight": ["23:59:59", "23:59:59.5", "00:00:00", "00:00:01.0"],
}  # fmt: skip
FORMATS = {
    "%Y.%m.%d_%H.%M.%S": ["2026.01.14_23.59.58", "2026.01.14_23.59.59", "2026.01.15_00.00.00"],
    "%d/%m/%Y %I:%M:%S %p": ["03/02/2026 11:59:58 AM", "03/02/2026 11:59:59 AM",
                             "03/02/2026 12:00:00 PM"],
    "%H-%M-%S": ["23-59-58", "23-59-59", "00-00-00"],
    "%Y%m%dT%H%M%S%z": ["20260203T100000+0200", "20260203T100001+0200", "20260203T080002+0000"],
}  # fmt: skip


@pytest.mark.parametrize("texts", TIMES.values(), ids=TIMES)
def test_times_are_seconds_since_the_first_row(texts: list[str], tmp_path: Path) -> None:
    rows = "".join(f"{text},{10 * place}\n" for place, text in enumerate(texts, start=1))
    profile = table(tmp_path, "t,mbps\n" + rows)
    assert played(profile, 0, 0.49, 0.51, 0.99, 1.01, 1.99, 2.01) == [10, 10, 20, 20, 30, 30, 40]


@pytest.mark.parametrize(("time_format", "texts"), FORMATS.items())
def test_a_format_of_ones_own_can_be_said(time_format, texts, tmp_path):
    rows = "".join(f"{text},{10 * place}\n" for place, text in enumerate(texts, start=1))
    profile = table(tmp_path, "t,mbps\n" + rows, time_format=time_format)
    assert played(profile, 0, 0.99, 1.01, 1.99, 2.01) == [10, 10, 20, 20, 30]


def test_a_table_may_have_no_times(tmp_path: Path) -> None:
    columns = {"time_s": "time_s", "rate_mbit": "mbps"}  # as conf/profile/columns.yaml has it
    for named in ({"rate_mbit": "mbps"}, {"time_s": None, "rate_mbit": "mbps"}, columns):
        profile = table(tmp_path, "mbps\n10\n20\n30\n", columns=named)
        assert played(profile, 0.9, 1.1, 2.1) == [10, 20, 30]
        assert notes(profile) == [f"{profile.path}: has no times: a row every 1 s"]
    with pytest.raises(ValueError, match=r"csv:1: must have one column 'time_s'.*spacing_s"):
        table(tmp_path, "at,mbps\n0,10\n", columns=columns)
    profile = table(tmp_path, "mbps\n10\n20\n30\n", columns=columns, spacing_s=0.25)
    assert played(profile, 0.2, 0.3, 0.6) == [10, 20, 30]


@pytest.mark.parametrize(
    ("unit", "text"), [(0.001, "41000"), (1e-6, "41000000"), (1, "41"), (1000, "0.041")]
)
def test_rates_may_have_any_unit(unit: float, text: str, tmp_path: Path) -> None:
    profile = table(tmp_path, f"t;mbps\n0;{text}\n", units={"rate_mbit": unit})
    assert played(profile, 0) == [pytest.approx(41)]


NONE = ["-1", "-999", "-999.9", "-", "", "NaN", "nan", "N/A", "null"]


@pytest.mark.parametrize("text", NONE)
def test_no_reading_is_refused_or_played_as_is_said(text: str, tmp_path: Path) -> None:
    rows = f"t,mbps,rtt\n0,{text},4\n1,40,5\n2,{text},6\n3,41,{text}\n4,42,8\n"
    columns = T_MBPS | {"delay_ms": "rtt"}
    said = f"recording.csv:2: mbps must be a number >= 0, got {text!r}"
    with pytest.raises(ValueError, match=re.escape(said) + ".*no_reading=hold .*no_reading=outage"):
        table(tmp_path, rows, columns=columns)
    held = table(tmp_path, rows, columns=columns, no_reading="hold")
    seen = [held.link(time_s, 0, "up")[:2] for time_s in range(4)]
    assert seen == [(40, 5), (40, 6), (41, 6), (42, 8)]
    out = table(tmp_path, rows, columns=columns, no_reading="outage", floor_mbit=0.5)
    seen = [out.link(time_s, 0, "up")[:2] for time_s in range(5)]
    assert seen == [(0.5, 4), (40, 5), (0.5, 6), (41, 6), (42, 8)]
    assert notes(out) == [f"{out.path}: 60 % of the samples had no reading (no_reading=outage)"]


def test_a_cooked_trace_may_miss_readings_and_have_equal_times(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("0 5\n1 -1\n2 6\n2 8\n")
    with pytest.raises(ValueError, match=r":2: Mbit/s must be a number >= 0, got '-1'"):
        Cooked(str(path))
    with pytest.raises(ValueError, match=r":4: its time must be above 2 .*got 2; same_time="):
        Cooked(str(path), no_reading="hold")
    profile = Cooked(str(path), no_reading="outage", same_time="mean", end="hold")
    assert played(profile, 0, 1, 2) == [5, 0.1, 7]


@pytest.mark.parametrize(("which", "rate"), [("first", 20), ("last", 40), ("mean", 30)])
def test_rows_of_one_time_become_one(which: str, rate: float, tmp_path: Path) -> None:
    rows = "t,mbps\n0,10\n1,20\n1,30\n1,40\n2,50\n"
    with pytest.raises(ValueError, match=r"csv:4: its time must be above 1 .*, got 1; same_time="):
        table(tmp_path, rows)
    profile = table(tmp_path, rows, same_time=which)
    assert played(profile, 0.9, 1, 1.9, 2) == [10, rate, rate, 50]


def test_a_hole_is_refused_or_filled_as_is_said(tmp_path: Path) -> None:
    rows = "t,mbps\n0,10\n1,20\n2,30\n60,40\n61,50\n"
    with pytest.raises(ValueError, match=r"csv:5: no row for 58 s .* every 1 s; write no_reading="):
        table(tmp_path, rows)
    held = table(tmp_path, rows, no_reading="hold")
    assert played(held, 2, 59, 60) == [30, 30, 40]
    assert notes(held) == [f"{held.path}: 1 hole between rows (no_reading=hold)"]
    out = table(tmp_path, rows, no_reading="outage")
    assert played(out, 2.9, 3, 59, 60) == [30, 0.1, 0.1, 40]


def test_rows_at_uneven_times_have_no_holes(tmp_path: Path) -> None:
    assert played(table(tmp_path, "t,mbps\n0,10\n1,20\n5,30\n9,40\n300,50\n"), 299) == [40]


REFUSED = [
    ("t,mbps\n0,1\n2026-02-03T10:00:00,2\n", {}, "csv:3: t must be a number, got '2026-02-03T10"),
    ("t,mbps\n2026-02-03T10:00:00,2\n1,1\n", {}, "csv:3: t must be .*2026-02-03T10.*, got '1'"),
    ("t,mbps\n10:00:00Z,2\n10:00:01,1\n", {}, "csv:3: t must have a time zone, as the first row"),
    ("t,mbps\n2026.01.14_10.16.30,2\n", {}, "got '2026.01.14_10.16.30'; .*'%Y.%m.%d_%H.%M.%S'"),
    ("t,mbps\n3/2/2026 10:16:30,2\n", {}, "got '3/2/2026 10:16:30'; .*'%d/%m/%Y %H:%M:%S'"),
    ("t,mbps\n,2\n", {}, "csv:2: t must be seconds, or a time such as .*, got ''"),
    ("t,mbps\n10-00,2\nx,2\n", {"time_format": "%H-%M"}, "csv:3: t .*'%H-%M' says, got 'x'"),
    ("t,mbps\n0,2\n", {"time_format": "%Q"}, "time_format must be in the words of .*'%Q'"),
    ("t,mbps\n0,2\n", {"time_format": "noon"}, "time_format must be in the words of"),
    ("t,mbps\n2026-10-25T02:59:59,2\n2026-10-25T02:00:00,3\n", {}, "csv:3: .*must have a zone"),
    ("t,mbps,run\n0,1,1\n1,2,1\n0,3,2\n", {}, "csv:4: its time must be above 1 .*got 0; .*where"),
    ("t,mbps,run\n0,1,1\n0,3,2\n", {"where": {"run": 7}}, "at least one row, got .*; run: 1, 2"),
    ("t,mbps\n0,1\n1,1e12\n", {}, "csv:3: rate_mbit must be .*column 'mbps'; bit/s need units"),
    ("t,mbps\n0,inf\n", {"no_reading": "hold"}, "csv:2: mbps must be a number, got 'inf'"),
    ("t,mbps\n0,-1\n1,-1\n", {"no_reading": "hold"}, "must have a reading in at least one row"),
    ("t,mbps\n0,1\n", {"units": {"rate_mbit": -1}}, "units.rate_mbit must be .*, got -1"),
    ("t,mbps\n0,1\n", {"units": {"rate_mbit": 0}}, "units.rate_mbit must be .*, got 0"),
    ("t,mbps\n0,1\n", {"units": {"loss": 0.01}}, "units.loss must be of a column"),
    ("t,mbps\n0,1\n", {"spacing_s": 1}, "spacing_s must be null where columns.time_s is a column"),
    ("x,mbps\n0,1\n", {}, "csv:1: must have one column 't', .*columns.time_s=null, and spacing_s"),
    ("t,mbps,l\n0,1,0.5\n1,1,1.5\n", {"columns": T_MBPS | {"loss": "l"}},
     "csv:3: loss must be a number in .*, got 1.5, of column 'l'; per cent need units"),
    ("t,mbps,d\n0,1,9\n1,1,-3\n", {"columns": T_MBPS | {"delay_ms": "d"}},
     "csv:3: d must be a number >= 0, got '-3'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told", "said"), REFUSED)
def test_what_cannot_be_played_is_refused_by_line_value_and_remedy(text, told, said, tmp_path):
    with pytest.raises(ValueError, match=said) as refused:
        table(tmp_path, text, **told)
    assert "\n" not in str(refused.value)


def test_lines_are_counted_over_comments_and_values_of_several_lines(tmp_path: Path) -> None:
    rows = '# by hand\n\ufefft,mbps,note\n0,1,"a\nb"\n'.replace("\ufeff", "")
    with pytest.raises(ValueError, match=r"csv:5: mbps must be a number >= 0, got '-2'"):
        table(tmp_path, rows + "1,-2,x\n")
    with pytest.raises(ValueError, match=r"csv:5: must have 3 values, got 2"):
        table(tmp_path, rows + "1,2\n")


def test_a_share_below_the_floor_is_said_of_every_recording_in_a_profile(tmp_path: Path) -> None:
    low = table(tmp_path, "t,mbps\n0,10\n1,0\n2,0.2\n3,9\n", floor_mbit=0.5)
    packets = tmp_path / "cell.mahimahi"
    packets.write_text("100\n900\n1000\n")
    cell = Mahimahi(str(packets), bin_ms=500, floor_mbit=0.03)
    said = [
        f"{low.path}: 50 % of the samples were below 0.5 Mbit/s and play at it (floor_mbit)",
        f"{cell.path}: 50 % of the samples were below 0.03 Mbit/s and play at it (floor_mbit)",
    ]
    assert notes(Asymmetric(low, ByNode(Static(5), {1: cell, 2: low}))) == said
    assert notes(Static(5), Trace("lte_drive.csv")) == []


@pytest.mark.parametrize("kind", [Trace, Columns, Cooked])
def test_a_day_of_rows_takes_16_bytes_a_row(kind: Any, tmp_path: Path) -> None:
    rows = 50_000
    path, sign = tmp_path / "day", " " if kind is Cooked else ","
    lines = [f"{place / 10}{sign}{1 + place % 97}.25" for place in range(rows)]
    path.write_text("\n".join(lines if kind is Cooked else ["time_s,rate_mbit", *lines]))
    told = {"columns": {"time_s": "time_s", "rate_mbit": "rate_mbit"}} if kind is Columns else {}
    tracemalloc.start()
    profile = kind(str(path), **told)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1.3 * 16 * rows
    assert played(profile, 123.4, 4999.9) == [1 + 1234 % 97 + 0.25, 1 + 49_999 % 97 + 0.25]
