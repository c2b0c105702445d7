"""Recorded networks: what replay makes of them, and what a file may not say."""

import math
from itertools import pairwise
from pathlib import Path

import pytest

from profiles.mahimahi import Mahimahi
from profiles.recordings import SHIPPED
from profiles.trace import Trace
from profiles.traces import make

ROWS = "time_s,rate_mbit,delay_ms,loss\n0,10,5,0\n2.5,20,6,0.1\n4,30.5,7,0\n"
SHIPPED_CSV = sorted(path.name for path in SHIPPED.glob("*.csv"))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "own.csv"
    path.write_text("# measured on a Tuesday\n" + ROWS)
    return str(path)


def rates(profile: Trace | Mahimahi, *times_s: float, node: int = 0) -> list[float]:
    return [profile.link(time_s, node, "up").rate_mbit for time_s in times_s]


def test_rows_hold_until_the_next(trace: str) -> None:
    profile = Trace(trace, end="hold")
    assert rates(profile, 0, 2.4, 2.5, 3.9, 4, 1e6) == [10, 10, 20, 20, 30.5, 30.5]
    assert profile.link(3.0, 0, "down") == (20, 6.0, 0.0, 0.1, 0.0)
    assert profile.extremes() == (10, 30.5, 7.0, 0.0, 0.1, 0.0, 0)


def test_a_loop_gives_the_last_row_the_length_of_the_one_before(trace: str) -> None:
    assert rates(Trace(trace), 5.4, 5.5, 8.0, 11.0) == [30.5, 10, 20, 10]


def test_a_loop_may_be_given_its_length(trace: str) -> None:
    assert rates(Trace(trace, length_s=10), 5.5, 9.9, 10, 12.5) == [30.5, 30.5, 10, 20]


def test_nodes_may_read_a_trace_at_different_times(trace: str) -> None:
    for end in ("loop", "hold"):
        profile = Trace(trace, end=end, stagger_s=2.5)
        times_s = [0.1 * tick for tick in range(100)]
        later = [time_s + 5 for time_s in times_s]
        assert rates(profile, *times_s, node=2) == rates(profile, *later, node=0)


def test_one_row_is_a_network_that_does_not_change(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("time_s,rate_mbit\n0,7")
    assert rates(Trace(str(tmp_path / "one.csv")), 0, 99.5, 1e6) == [7, 7, 7]


def test_a_file_may_come_from_elsewhere(tmp_path: Path, trace: str) -> None:
    """A byte order mark, Windows line ends, spaces, columns in another order, blank last lines."""
    lines = ["\ufefftime_s, rate_mbit, loss, delay_ms"]
    lines += ["0, 10, 0, 5", "2.5, 2e1, .1, 6", "4, 30.5, 0, 7", "", ""]
    (tmp_path / "windows.csv").write_bytes("\r\n".join(lines).encode())
    found = Trace(str(tmp_path / "windows.csv"))
    times_s = [0.1 * tick for tick in range(100)]
    assert [found.link(t, 0, "up") for t in times_s] == [
        Trace(trace).link(t, 0, "up") for t in times_s
    ]


def test_traces_are_equal_where_their_contents_are(trace: str) -> None:
    before = Trace(trace)
    assert before == Trace(trace) and hash(before) == hash(Trace(trace))
    Path(trace).write_text(ROWS.replace("10", "11"))
    assert before != Trace(trace)


def test_a_path_is_absolute_or_relative_or_a_shipped_name(trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert rates(Trace("own.csv"), 0) == rates(Trace(trace), 0)
    assert Trace("lte_drive.csv").extremes() == Trace(str(SHIPPED / "lte_drive.csv")).extremes()
    (tmp_path / "lte_drive.csv").write_text(ROWS)  # the user's own comes first
    assert rates(Trace("lte_drive.csv"), 0) == [10]


@pytest.mark.parametrize(("fields", "said"), [
    ({"end": "hold", "length_s": 9}, "length_s must be null where end is hold, got 9"),
    ({"length_s": 4}, r"length_s must be above 4\.0, the last time_s of .*own\.csv, got 4"),
    ({"length_s": 0}, r"length_s must be above 4\.0"),
])  # fmt: skip
def test_a_length_must_fit_the_rows(trace: str, fields: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Trace(trace, **fields)


def mahimahi(tmp_path: Path, times_ms: list[int], **fields: object) -> Mahimahi:
    path = tmp_path / "cell.mahimahi"
    path.write_text("".join(f"{time_ms}\n" for time_ms in times_ms))
    return Mahimahi(str(path), **fields)  # type: ignore[arg-type]


def test_packets_become_rates(tmp_path: Path) -> None:
    """Per 100 ms: 3 packets, none, 1 in the half bin at the end; 12 kbit each."""
    profile = mahimahi(tmp_path, [0, 40, 100, 250], bin_ms=100, floor_mbit=0.01)
    assert rates(profile, 0, 0.05, 0.1, 0.2, 0.24) == [0.36, 0.36, 0.01, 0.24, 0.24]
    assert rates(profile, 0.25, 0.36, 0.46) == [0.36, 0.01, 0.24]
    assert profile.range_mbit() == (0.01, 0.36)
    held = mahimahi(tmp_path, [0, 40, 100, 250], bin_ms=100, end="hold")
    assert rates(held, 0.25, 1e6) == [0.24, 0.24]


@pytest.mark.parametrize("bin_ms", [10, 70, 500, 60_000])
def test_no_packet_is_lost_in_the_bins(bin_ms: int) -> None:
    times_ms = [int(line) for line in (SHIPPED / "lte_walk.mahimahi").read_text().split()]
    profile = Mahimahi("lte_walk.mahimahi", bin_ms=bin_ms, floor_mbit=0.001)
    played = rates(profile, *(ms / 1000 + 1e-6 for ms in range(times_ms[-1])))
    at_floor = sum(rate == 0.001 for rate in played)  # of milliseconds without a packet
    assert math.isclose(sum(played) - 0.001 * at_floor, 12 * len(times_ms), rel_tol=1e-6)


def test_mahimahi_nodes_may_read_at_different_times() -> None:
    profile = Mahimahi("lte_walk.mahimahi", stagger_s=3)
    assert rates(profile, 1, 5, 16, node=2) == rates(profile, 7, 11, 22)


def test_running_make_again_gives_the_same_bytes(tmp_path: Path) -> None:
    make.make(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(made) == sorted([*SHIPPED_CSV, "lte_drive.cooked", "lte_walk.mahimahi"])
    for name, content in made.items():
        assert content == (SHIPPED / name).read_bytes(), f"{name}: run profiles/traces/make.py"
        assert len(content) < 60_000


def test_every_shipped_trace_says_that_it_is_synthetic() -> None:
    readme = (SHIPPED / "README.md").read_text()
    assert "none is a recording" in readme
    for path in [*SHIPPED.glob("*.csv"), *SHIPPED.glob("*.mahimahi")]:
        assert f"`{path.name}`" in readme
    for name in SHIPPED_CSV:
        first = (SHIPPED / name).read_text().splitlines()[0]
        assert first.startswith("# Synthetic, not a recording")


@pytest.mark.parametrize("name", SHIPPED_CSV)
def test_shipped_traces_change_for_minutes(name: str) -> None:
    profile = Trace(name)
    seen = rates(profile, *(float(time_s) for time_s in range(300)))
    assert sum(before != after for before, after in pairwise(seen)) > 60  # every five seconds
    lowest, highest = profile.extremes()[:2]
    assert highest > 3 * lowest
