"""What profiles refuse: any bad value of any field is a ValueError that names the field."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from harness.config.settings import BadSetting, Settings
from profiles.asymmetric import Asymmetric
from profiles.by_node import ByNode
from profiles.contended import Contended
from profiles.degrading import Degrading
from profiles.fluctuating import Fluctuating
from profiles.loss_bursts import LossBursts
from profiles.mahimahi import Mahimahi
from profiles.markov import Markov
from profiles.ornstein_uhlenbeck import OrnsteinUhlenbeck
from profiles.scaled import Scaled
from profiles.square import Square
from profiles.static import Static
from profiles.steps import Steps
from profiles.trace import Trace

Values = st.SearchStrategy[Any]
TRIED = given_settings(
    max_examples=12, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

TEXT = st.text("abcdefgh 0123456789.-", max_size=8)
NO_NUMBER: Values = st.one_of(
    TEXT,
    st.booleans(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.just("a"), st.integers(), max_size=1),
    st.sampled_from([float("nan"), float("inf"), -float("inf"), 10**400, -(10**400)]),
)
NONE: Values = st.none()


def outside(least: float, most: float) -> Values:
    """Numbers beyond the range, and what is no number."""
    below = st.floats(max_value=least, exclude_max=True, allow_infinity=False)
    above = st.floats(min_value=most, exclude_min=True, allow_infinity=False)
    return NO_NUMBER | below | above


RATE = outside(5e-324, 1e6) | st.just(0)
MAYBE_RATE = RATE | NONE
LASTING = outside(0.001, 1e9) | NONE
SINCE = outside(0, 1e9) | NONE
SHARE = outside(0, 1) | NONE | st.just(1)
FACTOR = outside(0, 1e6) | NONE
FLAG = TEXT | NONE | st.integers() | st.floats() | st.lists(st.booleans())
CHOICE = TEXT | NONE | st.integers() | st.booleans() | st.lists(st.just("loop"))
PROFILE = NO_NUMBER | NONE | st.integers()
FILE = NO_NUMBER.filter(lambda value: value not in (".", "..")) | NONE | st.just("a\0b")
FILE |= st.sampled_from(["", "/", ".", "x" * 5000])


def whole(least: int, most: int | None = None) -> Values:
    """Numbers that are not whole or beyond the range, and what is no number."""
    beyond = st.integers(max_value=least - 1)
    if most is not None:
        beyond |= st.integers(min_value=most + 1)
    return NO_NUMBER.filter(lambda value: value != 10**400) | beyond | st.floats() | NONE


BAD_STEPS: Values = st.one_of(
    NO_NUMBER, NONE, st.floats(),
    st.lists(st.lists(st.floats(1, 9), min_size=3), min_size=1),  # no pairs, none at 0
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(1, 9)), min_size=1),  # does not begin at 0
    st.tuples(RATE).map(lambda rate: [[0, 10], [5, rate[0]]]),
    st.tuples(SINCE).map(lambda time: [[0, 10], [time[0], 10]]),
    st.floats(0, 5).map(lambda early: [[0, 10], [5, 10], [early, 10]]),
)  # fmt: skip
BAD_NODES: Values = st.one_of(
    NO_NUMBER, NONE, st.floats(),
    st.dictionaries(st.integers(max_value=-1) | st.floats() | NONE, st.just(Static(1)), min_size=1),
    st.dictionaries(st.sampled_from(["-1", "1.5", "a", "", "²"]), st.just(Static(1)), min_size=1),
    st.dictionaries(st.integers(0, 9), PROFILE, min_size=1),
)  # fmt: skip

PATH = {"delay_ms": outside(0, 60_000) | NONE, "jitter_ms": outside(0, 60_000) | NONE}
PATH |= {"loss": SHARE, "reorder": SHARE}
SEEDED = {"seed": whole(0), "shared": FLAG}
OF = Static(100, delay_ms=5)
GOOD: dict[type, dict[str, Any]] = {
    Static: {"rate_mbit": 100},
    Degrading: {"start_mbit": 100, "end_mbit": 10, "step_mbit": 10, "step_s": 5},
    Steps: {"steps": [[0, 10], [5, 20]]},
    Square: {"high_mbit": 20, "low_mbit": 10, "period_s": 5},
    Fluctuating: {"low_mbit": 10, "high_mbit": 20, "min_s": 4, "max_s": 8},
    Markov: {"good_mbit": 20, "bad_mbit": 10, "mean_good_s": 4, "mean_bad_s": 8},
    OrnsteinUhlenbeck: {
        "mean_mbit": 20, "deviation_mbit": 5, "correlation_s": 9, "low_mbit": 1, "high_mbit": 99,
    },
    Trace: {"path": "lte_drive.csv"},
    Mahimahi: {"path": "lte_walk.mahimahi"},
    ByNode: {"default": OF, "nodes": {3: OF}},
    Asymmetric: {"up": OF, "down": OF},
    Scaled: {"of": OF},
    LossBursts: {"of": OF, "mean_gap_s": 9, "mean_burst_s": 1, "loss": 0.1},
    Contended: {"of": OF, "parallel": 4},
}  # fmt: skip
BAD: dict[type, dict[str, Values]] = {
    Static: PATH
    | {"rate_mbit": MAYBE_RATE.filter(lambda value: not isinstance(value, list)) | st.lists(RATE)},
    Degrading: PATH
    | dict.fromkeys(["start_mbit", "end_mbit", "step_mbit"], MAYBE_RATE)
    | {"step_s": LASTING},
    Steps: PATH | {"steps": BAD_STEPS, "repeat_s": SINCE.filter(lambda value: value is not None)},
    Square: PATH
    | dict.fromkeys(["high_mbit", "low_mbit"], MAYBE_RATE)
    | {"period_s": LASTING, "duty": SHARE | st.just(0)},
    Fluctuating: PATH
    | SEEDED
    | dict.fromkeys(["low_mbit", "high_mbit"], MAYBE_RATE)
    | dict.fromkeys(["min_s", "max_s"], LASTING),
    Markov: PATH
    | SEEDED
    | dict.fromkeys(["good_mbit", "bad_mbit"], MAYBE_RATE)
    | dict.fromkeys(["mean_good_s", "mean_bad_s"], LASTING),
    OrnsteinUhlenbeck: PATH
    | SEEDED
    | dict.fromkeys(["mean_mbit", "low_mbit", "high_mbit"], MAYBE_RATE)
    | {"deviation_mbit": outside(0, 1e6) | NONE, "correlation_s": LASTING, "step_s": LASTING},
    Trace: {"path": FILE, "end": CHOICE, "length_s": SINCE.filter(lambda value: value is not None),
            "stagger_s": SINCE},
    Mahimahi: PATH
    | {"path": FILE, "end": CHOICE, "stagger_s": SINCE}
    | {"bin_ms": whole(10, 60_000), "floor_mbit": MAYBE_RATE},
    ByNode: {"default": PROFILE, "nodes": BAD_NODES},
    Asymmetric: {"up": PROFILE, "down": PROFILE},
    Scaled: {"of": PROFILE, "factor": FACTOR | st.just(0)},
    LossBursts: {"of": PROFILE, "mean_gap_s": LASTING, "mean_burst_s": LASTING, "loss": SHARE}
    | SEEDED,
    Contended: {"of": PROFILE, "parallel": whole(0, 128), "on_s": LASTING, "off_s": LASTING}
    | {"start_s": SINCE, "spread": SHARE, "seed": whole(0)}
    | {"up_to": whole(4, 128).filter(lambda value: value is not None)}
    | {"cycles": whole(1).filter(lambda value: value is not None)},
}  # fmt: skip
FIELDS = [(kind, field) for kind, by_field in BAD.items() for field in by_field]


def test_every_field_of_every_profile_is_tried() -> None:
    for kind, by_field in BAD.items():
        assert set(by_field) == {field.name for field in fields(kind) if field.init}, kind
        kind(**GOOD[kind])


@pytest.mark.parametrize(
    ("kind", "field"), FIELDS, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_bad_value_names_its_field(kind: type, field: str) -> None:
    @TRIED
    @given(BAD[kind][field])
    def refused(value: Any) -> None:
        with pytest.raises(ValueError) as found:
            kind(**GOOD[kind] | {field: value})
        assert type(found.value) is ValueError
        message = str(found.value)
        assert field in message and " must " in message
        assert "\n" not in message

    refused()


@pytest.mark.parametrize("kind", [Static, Steps, Markov, Trace, Mahimahi, Square])
def test_a_user_is_told_so_too(kind: type) -> None:
    """The same through the settings of a run: BadSetting, which ends it in one line."""
    by_field = st.sampled_from(sorted(BAD[kind]))

    @TRIED
    @given(st.data(), by_field)
    def refused(data: st.DataObject, field: str) -> None:
        value = data.draw(BAD[kind][field])
        section = GOOD[kind] | {field: value, "_target_": f"{kind.__module__}.{kind.__name__}"}
        with pytest.raises(BadSetting, match=f"^profile: .*{field}"):
            Settings({"profile": section}).build("profile")

    refused()


@pytest.mark.parametrize("config", [{}, {"profile": None}, {"profile": 3}, {"profile": {"a": 1}}])
def test_a_profile_that_is_none_is_told_so(config: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="^profile must be a section with _target_, got"):
        Settings(config).build("profile")


@pytest.mark.parametrize(("kind", "changed", "said"), [
    (Degrading, {"end_mbit": 200}, r"end_mbit must be in \(0, 100\] \(start_mbit\), got 200"),
    (Fluctuating, {"low_mbit": 99}, r"low_mbit must be in \(0, 20\] \(high_mbit\), got 99"),
    (Fluctuating, {"min_s": 99}, r"min_s must be in \(0, 8\] \(max_s\), got 99"),
    (Markov, {"bad_mbit": 99}, r"bad_mbit must be in \(0, 20\] \(good_mbit\), got 99"),
    (Square, {"low_mbit": 99}, r"low_mbit must be in \(0, 20\] \(high_mbit\), got 99"),
    (OrnsteinUhlenbeck, {"low_mbit": 50}, r"low_mbit must be in \(0, 20\] \(mean_mbit\)"),
    (OrnsteinUhlenbeck, {"high_mbit": 2}, r"mean_mbit must be in \(0, 2\] \(high_mbit\)"),
    (Static, {"jitter_ms": 2}, r"jitter_ms must be in \[0, 0\.0\] \(delay_ms\), got 2"),
    (Static, {"reorder": 0.1}, "reorder must be 0 without a delay_ms to overtake, got 0.1"),
    (Steps, {"repeat_s": 5}, "repeat_s must be above 5, where the last step begins, got 5"),
    (Steps, {"steps": [[0, 1], [0, 2]]}, r"steps\[1\] must begin after 0 s, got 0"),
    (Trace, {"path": "x.csv"}, r"path must be a file: .* office_wifi\.csv, .* got 'x\.csv'"),
])  # fmt: skip
def test_values_that_do_not_go_together(kind: type, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(**GOOD[kind] | changed)
