"""Recordings as others publish them: what is read of them, and what is refused."""

import pytest

from profiles.foreign import Columns, Cooked
from profiles.trace import Trace

NAMES = {"time_s": "seq_num", "rate_mbit": "Throughput"}
TABLE = "run_num,seq_num,Throughput,rtt\n1,3,100,8\n2,1,7,9\n1,4,0,10\n1,6,300,12\n"


def at(profile, *times_s):
    return [profile.link(time_s, 0, "up") for time_s in times_s]


def written(folder, text):
    path = folder / "recording"
    path.write_text(text)
    return str(path)


def test_a_cooked_trace_is_its_rates_from_its_first_second(tmp_path):
    profile = Cooked(written(tmp_path, "0.5\t1.5\n1.5 2\n3\t0\n"), end="hold", floor_mbit=0.2)
    assert [link.rate_mbit for link in at(profile, 0, 0.9, 1, 2.4, 2.5, 99)] == [
        1.5, 1.5, 2.0, 2.0, 0.2, 0.2,
    ]  # fmt: skip
    assert profile.extremes().lowest_mbit == 0.2 and profile.extremes().highest_mbit == 2.0


def test_the_shipped_one_has_the_rates_of_its_csv():
    cooked, trace = Cooked("lte_drive.cooked"), Trace("lte_drive.csv")
    times_s = [0.0, 17.0, 333.3, 599.0]
    assert [each.rate_mbit for each in at(cooked, *times_s)] == [
        each.rate_mbit for each in at(trace, *times_s)
    ]


def test_columns_are_mapped_scaled_and_picked(tmp_path):
    told = {"columns": NAMES | {"delay_ms": "rtt"}, "units": {"delay_ms": 0.5}}
    profile = Columns(written(tmp_path, TABLE), end="hold", where={"run_num": 1}, **told)
    seen = [(link.rate_mbit, link.delay_ms) for link in at(profile, 0, 1, 2.9, 3)]
    assert seen == [(100, 4), (0.1, 5), (0.1, 5), (300, 6)]
    assert hash(profile) == hash(Columns(profile.path, end="hold", where={"run_num": 1}, **told))


@pytest.mark.parametrize(("text", "named"), [
    ("1 2 3", ":1: must be seconds and Mbit/s"),
    ("0 1\nnan 2", ":2: seconds must be a number, got 'nan'"),
    ("0 1\n0 2", ":2: its time must be above 0"),
    ("0 1\n1 1e9", ":2: rate_mbit must be"),
    ("0 1\n1 1e999", "rate_mbit must be"),
    ("", "at least one row"),
])  # fmt: skip
def test_a_bad_cooked_line_is_named(text, named, tmp_path):
    with pytest.raises(ValueError, match=named):
        Cooked(written(tmp_path, text))


@pytest.mark.parametrize(("text", "told", "named"), [
    (TABLE, {"columns": {"time_s": "seq_num"}}, "columns must say which is rate_mbit"),
    (TABLE, {"columns": NAMES | {"color": "rtt"}}, "must be of time_s, rate_mbit"),
    (TABLE, {"columns": NAMES | {"loss": "lost"}}, ":1: must have one column 'lost'"),
    (TABLE, {"columns": NAMES | {"loss": "rtt"}}, ":2: loss must be a number in"),
    (TABLE, {"columns": NAMES}, ":3: its time must be above 3"),
    (TABLE, {"columns": NAMES, "where": {"run_num": 9}}, "at least one row"),
    (TABLE, {"columns": NAMES, "units": {"rate_mbit": "k"}}, "units.rate_mbit must be"),
    (TABLE, {"columns": 3}, "columns must be a mapping"),
    (TABLE + "1,2", {"columns": NAMES, "where": {"run_num": 1}}, ":6: must have 4 values"),
    (TABLE + '"a', {"columns": NAMES, "where": {"run_num": 1}}, "not a CSV"),
    (TABLE.replace("300", "fast"), {"columns": NAMES, "where": {"run_num": 1}}, ":5: Throughp"),
])  # fmt: skip
def test_a_bad_table_is_named(text, told, named, tmp_path):
    with pytest.raises(ValueError, match=named):
        Columns(written(tmp_path, text), **told)
