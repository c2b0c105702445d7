"""Where on a grid a claim holds: shares, borders, and the command that runs the points."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.fidelity.timing import timings
from harness.reporting.analysis import sensitivity
from harness.reporting.claims.base import FAILS, HOLDS, NOT_DECIDABLE
from harness.sensitivity import _ranges, main

ROOT = Path(__file__).resolve().parents[2]
AXES = {"rate": ("10", "20", "50"), "workers": ("4", "8")}


def verdicts(holds: Callable[[int, int], bool]) -> dict[sensitivity.Point, str]:
    return {
        point: HOLDS if holds(int(point[0]), int(point[1])) else FAILS
        for point in sensitivity.points(AXES)
    }


def test_a_border_along_one_axis_is_told_on_every_line() -> None:
    found = verdicts(lambda rate, workers: rate < 20)
    assert sensitivity.crossings(AXES, found) == [("rate", ("10", "20"), 2, 2)]
    assert sensitivity.told(AXES, found, 1) == [
        "holds in 33% of 6 settings that can decide it (1 more are refused)",
        "does not hold: 4",
        "border: rate between 10 and 20, on 2 of 2 lines",
        "no border along workers",
    ]
    assert sensitivity.shares(AXES, found) == [[1, 0, 0], [1, 0, 0]]
    one = {"rate": AXES["rate"]}
    assert sensitivity.shares(one, {("10",): HOLDS, ("50",): FAILS})[0][::2] == [1, 0]


def test_a_border_across_both_axes_is_told_where_it_is() -> None:
    found = verdicts(lambda rate, workers: rate * workers <= 80)
    assert sensitivity.crossings(AXES, found) == [
        ("rate", ("10", "20"), 1, 2),
        ("rate", ("20", "50"), 1, 2),
        ("workers", ("4", "8"), 1, 3),
    ]


def test_settings_that_cannot_decide_a_claim_have_no_share_and_no_border() -> None:
    found = verdicts(lambda rate, workers: rate < 50) | dict.fromkeys(
        [("50", "4"), ("50", "8")], NOT_DECIDABLE
    )
    assert sensitivity.told(AXES, found, 0) == [
        "holds in 100% of 4 settings that can decide it",
        f"{NOT_DECIDABLE}: 2",
        "no border along rate",
        "no border along workers",
    ]
    nothing = dict.fromkeys(found, NOT_DECIDABLE)
    assert sensitivity.told(AXES, nothing, 0)[0] == "holds in none of 0 settings that can decide it"


@given(held=st.lists(st.booleans(), min_size=6, max_size=6), missing=st.sets(st.integers(0, 5)))
def test_there_is_a_border_just_where_verdicts_differ(held: list[bool], missing: set[int]) -> None:
    """Whatever points are refused, lines that cross are at most those with both points."""
    all_points = sensitivity.points(AXES)
    found = {
        point: HOLDS if holds else FAILS
        for at, (point, holds) in enumerate(zip(all_points, held, strict=True))
        if at not in missing
    }
    border = sensitivity.crossings(AXES, found)
    assert all(0 < each.lines <= each.of_lines for each in border)
    if len(found) == 6:
        assert bool(border) == (len(set(found.values())) == 2)
    if found:
        assert sensitivity.share(found) == sum(v == HOLDS for v in found.values()) / len(found)


def test_ranges_of_a_study_name_a_claim_and_have_a_reason_each() -> None:
    files = list((ROOT / "papers").glob("*/ranges/*.yaml"))
    for file in files:
        found = _ranges(file)
        bed = timings()[found.testbed]
        own = {key: float(values[0]) for key, values in found.axes.items()}
        (claim,) = bed.verdicts(found.claim, [own])
        assert found.claim in f"{claim.id}: {claim.text}"
    assert files


def test_constants_of_a_testbed_are_mapped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"claim": "ACP-SGD is faster than Power-SGD", "testbed": "acpsgd"}
    axis = {"values": [0, 518.7], "why": "nothing, and its own"}
    ranges = tmp_path / "ranges.yaml"
    ranges.write_text(json.dumps(told | {"axes": {"costs.powersgd.matrix_us": axis}}))
    main(["--ranges", str(ranges), "--results", str(tmp_path)])
    assert re.search(r"holds in \d+% of 2 settings", capsys.readouterr().out)
    assert list((tmp_path / "sensitivity").glob("*.svg"))
    ranges.write_text(json.dumps(told | {"axes": {"matrix_us": axis}}))
    with pytest.raises(SystemExit, match="axis must be one of workers, .*got 'matrix_us'"):
        main(["--ranges", str(ranges), "--results", str(tmp_path)])


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("claim: x", "must have the keys claim, axes, and overrides or testbed"),
        ("{claim: x, overrides: [], axes: {seed: {values: [1, 2]}}}", "axes.seed must have values"),
        ("{claim: x, overrides: [], axes: {seed: {values: [1], why: so}}}", "two values or more"),
    ],
)
def test_ranges_without_reasons_are_refused(tmp_path: Path, told: str, message: str) -> None:
    (tmp_path / "ranges.yaml").write_text(told)
    with pytest.raises(SystemExit, match=message):
        main(["--ranges", str(tmp_path / "ranges.yaml")])


def test_points_are_run_judged_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With 8 workers an all-gather costs top-k more than a ring costs a gradient, with 2 less."""
    asked = "+experiment=netsense_table1 profile.of.rate_mbit=500 steps=4"
    command = [
        *asked.split(),
        "seed=0,1,2",
        "--claim",
        "500 Mbit/s: TopK-0.1 loses",
        "--results",
        str(tmp_path),
    ]
    main([*command, "--grid", "workers=2,8,0"])
    told = capsys.readouterr().out
    assert re.search(r"2 points, 1 refused; (\d+) runs, \1 to do, about ", told)
    assert "refused, 1 points, such as workers=0: workers must be" in told
    assert "holds in 50% of 2 settings that can decide it (1 more are refused)" in told
    assert "border: workers between 2 and 8, on 1 of 1 lines" in told
    [table] = (tmp_path / "sensitivity").glob("*.csv")
    assert list(csv.reader(table.open())) == [
        ["workers", "verdict"],
        ["2", FAILS],
        ["8", HOLDS],
    ]
    assert "<svg" in table.with_suffix(".svg").read_text()


@pytest.mark.parametrize(
    "wrong",
    ["--grid workers", "--grid workers=4", "--grid =1,2", "--grid workers=0,-1",
     "--grid workers=2,4 network=netns", "--grid no.such=1,2"],
)  # fmt: skip
def test_a_bad_grid_is_refused_in_a_line(wrong: str, tmp_path: Path) -> None:
    asked = ["+experiment=netsense_table1", "seed=0", "profile.of.rate_mbit=500"]
    asked += ["--claim", "TopK", "--results", str(tmp_path)]
    with pytest.raises(SystemExit, match=r"harness\.sensitivity: \S") as refused:
        main([*asked, *wrong.split()])
    assert "\n" not in str(refused.value) and not (tmp_path / "sensitivity").exists()
