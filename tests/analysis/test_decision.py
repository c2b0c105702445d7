"""Who is first: laws over random results, and what is said of results whose answer is known."""

import math
import re
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.reporting.analysis import metrics
from harness.reporting.analysis.decision import (
    MOST_NAMED,
    Decision,
    arranged,
    compared,
    decide,
    sentences,
)
from harness.reporting.figures.decision import time_to_target
from harness.reporting.figures.theme import NothingToDraw
from tests.claims.tables import row

GOAL = 0.9
NAN = math.nan
NAMES = ["allreduce", "topk_0.1", "topk_0.001", "pace", "randomk_0.1", "qsgd"]


def rows(method: str, *times_s: float, **known: Any) -> list[dict[str, Any]]:
    """A run a seed that took so long to the target; nan: that never reached it, in 100 s."""
    return [
        row("by_hand", method, seed, reached=not math.isnan(time_s), final=0.95,
            time_to_target_s=100.0 if math.isnan(time_s) else time_s) | known
        for seed, time_s in enumerate(times_s)
    ]  # fmt: skip


def decided(*methods: list[dict[str, Any]], target: float | None = GOAL) -> Decision:
    return decide(pd.DataFrame([each for runs in methods for each in runs]), target, "allreduce")


TIMES = st.one_of(st.just(NAN), st.floats(0.001, 1e5))
RUN = st.tuples(TIMES, st.booleans(), st.one_of(st.just(NAN), st.floats(0.0, 1.0)))
RESULTS = st.dictionaries(st.sampled_from(NAMES), st.lists(RUN, min_size=1, max_size=4), min_size=1)


def of(results: dict[str, list[tuple[float, bool, float]]]) -> pd.DataFrame:
    found = []
    for method, runs in results.items():
        for seed, (time_s, diverged, final) in enumerate(runs):
            [run] = rows(method, time_s, diverged=diverged, final=final)
            found.append(run | {"seed": seed})
    return pd.DataFrame(found)


def reaches(runs: list[tuple[float, bool, float]]) -> float:
    """Share of runs that reached the target and stayed."""
    return sum(not math.isnan(time_s) and not diverged for time_s, diverged, _ in runs) / len(runs)


@settings(deadline=None)
@given(RESULTS)
def test_who_never_reaches_the_target_is_never_above_who_does(results) -> None:
    measured = of(results)
    found = decide(measured, GOAL, "allreduce")
    if not found.decides:  # nothing was evaluated
        assert measured.final.isna().all() and not found.ranked
        return
    complete = {name: runs for name, runs in results.items() if len(runs) >= found.seeds}
    assert [one.method for one in found.choices] == [
        one.method for one in found.standings if one.method in complete
    ]
    shares = [reaches(results[one.method][: found.seeds]) for one in found.choices]
    assert shares == sorted(shares, reverse=True)
    table = arranged(metrics.compare(compared(measured), "allreduce"), found)
    assert table.method.tolist() == [one.method for one in found.standings]
    ranked = [one.method for one in found.ranked]
    assert set(ranked) == {m for m, runs in complete.items() if reaches(runs[: found.seeds]) == 1}
    times = [one.time_s.mean for one in found.ranked]
    assert times == sorted(times) and all(map(math.isfinite, times))
    assert table.place.dropna().tolist() == list(range(1, len(ranked) + 1))
    assert set(table.seeds[table.place.notna()]) <= {found.seeds}
    first, *rest = sentences(found)
    start = rf"{ranked[0]} (is first: it )?reaches accuracy 0.9 " if ranked else "No "
    assert re.match(start, first)
    for method, runs in results.items():
        if len(runs) < found.of_seeds and len(results) <= MOST_NAMED:
            assert f"{method} ({len(runs)} of {found.of_seeds} seeds)" in first
    for method, runs in results.items():
        if 0 < reaches(runs) < 1:
            assert any(line.startswith(f"{method} reaches it in") for line in rest)


@settings(deadline=None, max_examples=25)
@given(RESULTS)
def test_the_first_figure_has_the_order_of_the_decision_and_opens_what_is_a_bound(results) -> None:
    found = decide(of(results), GOAL, "allreduce")
    try:
        (axes,) = time_to_target(found).axes
    except NothingToDraw:
        assert not found.decides
        return
    shown = dict(zip([each.get_text() for each in axes.get_yticklabels()], axes.get_yticks(),
                     strict=True))  # fmt: skip
    assert list(shown) == [each.method for each in found.standings]
    assert list(shown.values()) == sorted(shown.values()) and axes.yaxis_inverted()
    arrows = {each.xy[1] for each in axes.texts if each.get_text() == "→"}
    assert arrows == {shown[each.method] for each in found.standings if not each.always}
    words = [each.get_text() for each in axes.texts if "incomplete" in each.get_text()]
    assert len(words) <= sum(not one.complete for one in found.standings)
    assert axes.get_xscale() == "log" or axes.get_xlim()[0] == 0


def test_the_first_sentence_has_the_winner_its_lead_and_the_interval() -> None:
    found = decided(
        rows("allreduce", 20.0, 22.0, 24.0),
        rows("topk_0.1", 10.0, 11.0, 12.0),
        rows("pace", *3 * [NAN]),
    )
    first, *rest = sentences(found)
    _, low, high = metrics.interval(pd.Series([10.0, 11.0, 12.0]))
    assert low < 11 < high
    assert first == (
        f"topk_0.1 is first: it reaches accuracy 0.9 after 11 s ({low:.3g} to {high:.3g}, 3 seeds)"
        "; allreduce takes 2.00 times as long (2.00 to 2.00, 3 pairs of runs)."
    )
    assert rest == ["Never: pace."]


def seeds_of(method: str, *seeds: int, time_s: float = 10.0, **known: Any) -> list[dict[str, Any]]:
    """Runs of these seeds; a higher seed is harder for every method."""
    return [row("by_hand", method, n, time_to_target_s=time_s + n) | known for n in seeds]


SIX = range(6)


@pytest.mark.parametrize(("others", "compared_seeds", "incomplete"), [
    ([seeds_of("topk_0.1", 0, time_s=1.0)], 6, "topk_0.1 (1 of 6 seeds)"),
    ([seeds_of("topk_0.1", 0, 1, time_s=1.0)], 6, "topk_0.1 (2 of 6 seeds)"),
    ([seeds_of("topk_0.1", 9, time_s=1.0)], 6, "topk_0.1 (1 of 7 seeds)"),
    ([seeds_of("topk_0.1", *range(5), time_s=60.0)], 5, "topk_0.1 (5 of 6 seeds)"),
    ([seeds_of("oracle", 3, time_s=1.0)], 6, "oracle (1 of 6 seeds)"),
])  # fmt: skip
def test_only_seeds_that_all_have_are_compared(others, compared_seeds, incomplete) -> None:
    found = decided(seeds_of("allreduce", *SIX, time_s=40.0), seeds_of("pace", *SIX), *others)
    first = sentences(found)[0]
    assert first.startswith("pace is first: it reaches accuracy 0.9 after")
    assert f", {compared_seeds} seeds)" in first and incomplete in first
    assert {one.runs for one in found.ranked} == {compared_seeds}
    assert all(one.over_first.seeds == compared_seeds for one in found.ranked[1:])


def test_an_incomplete_method_is_held_against_the_first_where_both_ran() -> None:
    found = decided(
        seeds_of("allreduce", *SIX), seeds_of("pace", *SIX, time_s=5.0),
        seeds_of("qsgd", 0, 1, time_s=10.0),
    )  # fmt: skip
    assert "qsgd, incomplete, takes 1.92 times as long" in " ".join(sentences(found))
    (axes,) = time_to_target(found).axes
    assert [each.get_text() for each in axes.texts if "incomplete: 2 seeds" in each.get_text()]
    hollow = [bar.get_facecolor()[3] == 0 for bar in axes.patches]
    assert hollow == [False, False, True]


def test_easy_seeds_that_others_lack_make_nobody_first() -> None:
    # pace is slower on every seed, but ran the easy ones alone: its mean is the lower one.
    found = decided(seeds_of("allreduce", *SIX), seeds_of("pace", 0, 1, time_s=11.0))
    assert sentences(found)[0].startswith("allreduce is first: it reaches accuracy 0.9 after 10.5")
    apart = decided(seeds_of("allreduce", 0, 1), seeds_of("pace", 2, 3))
    assert not apart.ranked and sentences(apart)[0].startswith("No two methods have a seed in")


def test_a_miss_on_a_seed_that_is_not_compared_is_said() -> None:
    missed = seeds_of("allreduce", 5, reached=False)
    found = decided([*seeds_of("allreduce", *range(5)), *missed], seeds_of("pace", *range(5)))
    assert {one.method for one in found.ranked} == {"allreduce", "pace"}
    assert "allreduce reaches it in 5 of 6 runs." in sentences(found)


def test_a_lead_within_chance_is_undecided_and_one_pair_has_no_interval() -> None:
    near = decided(rows("allreduce", 10.0, 12.0, 9.0), rows("topk_0.1", 11.0, 10.0, 9.5))
    assert "which of the two is sooner is undecided" in sentences(near)[0]
    alone = decided(rows("allreduce", 20.0), rows("topk_0.1", 10.0))
    assert sentences(alone) == [
        "topk_0.1 is first: it reaches accuracy 0.9 after 10 s (one seed: no interval); "
        "allreduce takes 2.00 times as long."
    ]


def test_the_baseline_is_told_where_it_is_neither_first_nor_next() -> None:
    found = decided(rows("allreduce", 40.0), rows("topk_0.1", 20.0), rows("pace", 10.0))
    assert sentences(found)[1].startswith("allreduce, the baseline, takes 4.00 times as long")


def test_who_reaches_it_and_diverges_has_not_reached_it() -> None:
    found = decided(rows("allreduce", 20.0), rows("pace", 1.0, diverged=True, final=NAN))
    assert [each.method for each in found.ranked] == ["allreduce"]
    assert sentences(found) == [
        "allreduce is first: it reaches accuracy 0.9 after 20 s (one seed: no interval); "
        "no other method reaches it.",
        "Never: pace (diverged).",
    ]


def test_where_nobody_reaches_it_the_nearest_is_named() -> None:
    found = decided(rows("allreduce", NAN, final=0.7), rows("pace", NAN, final=0.8))
    assert sentences(found) == ["No method reaches accuracy 0.9; pace comes nearest, at 0.8."]
    lower = {"metric": "perplexity"}
    both = [rows("allreduce", NAN, final=70.0, **lower), rows("pace", NAN, final=80.0, **lower)]
    assert "allreduce comes nearest, at 70" in sentences(decided(*both, target=60.0))[0]


@pytest.mark.parametrize("target", [None, NAN])
def test_without_a_target_nothing_is_ranked_and_it_says_what_to_write(target) -> None:
    found = decided(rows("topk_0.1", NAN), rows("allreduce", NAN), target=target)
    assert [each.method for each in found.standings] == ["allreduce", "topk_0.1"]
    assert not found.ranked
    [said] = sentences(found)
    assert "No target is set" in said and "write target.value= and the accuracy to reach" in said
    with pytest.raises(NothingToDraw, match="no target"):
        time_to_target(found)


def test_an_oracle_is_no_choice_however_fast_it_is() -> None:
    found = decided(rows("allreduce", 20.0), rows("pace", 10.0), rows("oracle", 5.0))
    assert [each.method for each in found.standings] == ["pace", "allreduce", "oracle"]
    assert [each.method for each in found.ranked] == ["pace", "allreduce"]
    assert sentences(found)[-1].startswith(
        "oracle knows the profile, and is no choice; it takes 5 s"
    )
    (axes,) = time_to_target(found).axes
    assert [each.get_text() for each in axes.get_yticklabels()] == ["pace", "allreduce"]


def test_times_that_span_decades_are_points_on_a_logarithmic_axis() -> None:
    (axes,) = time_to_target(decided(rows("allreduce", 900.0), rows("pace", 10.0))).axes
    assert axes.get_xscale() == "log" and not axes.patches
    (axes,) = time_to_target(decided(rows("allreduce", 20.0), rows("pace", 10.0))).axes
    assert [bar.get_width() for bar in axes.patches] == [10, 20] and axes.get_xlim()[0] == 0


@pytest.mark.parametrize(("second_s", "late_s", "said"), [
    (10.0, 3.0, "is undecided"),
    (12.0, 1.0, "pace is first even so"),
    (12.0, 2.5, "is undecided"),
])  # fmt: skip
def test_a_time_that_other_programs_may_have_made_longer_has_a_low_end(second_s, late_s, said):
    """The second may have been the first where its low end is no later."""
    late = {"late_s": late_s, "late_share": 0.07}
    found = decided(rows("pace", 9.5), rows("qsgd", second_s, **late))
    assert found.standings[1].time_s == (second_s, second_s - late_s, second_s)
    headline, bounded = sentences(found)
    assert said in headline and bounded.endswith("times count within: qsgd 7%.")
    assert math.isnan(found.standings[0].time_s.low)
    never = decided(rows("pace", 9.5), rows("qsgd", NAN, **late))
    assert math.isnan(never.standings[1].time_s.low)


def test_a_time_that_other_programs_made_longer_is_drawn_hollow_with_its_interval() -> None:
    late = {"late_s": 1.0, "late_share": 0.07}
    (axes,) = time_to_target(decided(rows("pace", 9.5), rows("qsgd", 12.0, **late))).axes
    assert [each.get_text() for each in axes.get_yticklabels()] == ["pace", "qsgd"]
    assert [bar.get_facecolor()[3] > 0 for bar in axes.patches] == [True, False]
    [ends] = [each.get_segments() for each in axes.collections]
    assert ends[0][:, 0].tolist() == [11.0, 12.0]
