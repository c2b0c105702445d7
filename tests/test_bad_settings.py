"""Settings that nobody thought of: each is refused in one line, or runs; nothing else happens.

Every key of some compositions is set to values of every kind. What the check lets pass is run in
virtual time, two steps of it: what passes the check must not fail afterwards.
"""

import io
import random
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import __main__ as command
from harness import signals
from harness.config.scales import Described, compose
from harness.config.settings import Settings
from harness.runner import run

TINY = ("workers=2", "steps=2", "model=mlp", "dataset=digits", "network=simulated", "report=false")
COMPOSITIONS = (
    (),
    ("method=topk",),
    ("method=dc2_da2", "profile=fluctuating"),
    ("method=powersgd", "profile=markov"),
    ("parallel=pipeline", "parallel.stages=2", "profile=ornstein_uhlenbeck"),
    ("method=netsense", "profile=contended"),
    ("method=covap", "profile=trace"),
    ("method=accordion", "profile=lossy"),
    ("network=netns", "profile=steps", "method=pace"),
    ("network=dumbbell", "profile=degrading", "method=kimad"),
)
VALUES = (
    "null", "{}", "[]", "abc", "''", "-1", "0", "1.5", "nan", "inf", "-inf", "1e30", "true",
    "18446744073709551616", "{a: 1}", "[1, 2]", "os.getcwd", "../../evil",
)  # fmt: skip
NOT_TRIED = ("results", "report", "plan")  # where the test writes; what starts no run
RAW = ("Error:", "Exception:", "Traceback")  # how Python names an error
MOST_S = 5.0  # of processor time
ALL, SOME = 500, 20


class Answer(NamedTuple):
    """What the command did with one line of settings."""

    said: str | None  # None: it would have started
    printed: str
    took_s: float
    settings: list[Settings]


class Started(Exception):
    """It got as far as starting runs."""


def answer(*words: str) -> Answer:
    """Of `python -m harness` with `words`, in this process, up to the first run."""
    printed, began, found = io.StringIO(), time.process_time(), list[Settings]()

    def started(asked: Described) -> None:
        found.extend(asked.runs)
        raise Started

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["harness", *words])
        patch.setattr(signals, "stop_in_order", lambda: None)
        patch.setattr(command, "_perform", started)
        with redirect_stdout(printed), redirect_stderr(printed):
            try:
                command.main()
            except SystemExit as ended:
                said = str(ended.code)
            except Started:
                said = None
    return Answer(said, printed.getvalue(), time.process_time() - began, found)


def keys(section: dict, prefix: str = "") -> Iterator[str]:
    for key, value in section.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from keys(value, f"{prefix}{key}.")


@cache
def lines(count: int) -> list[tuple[str, ...]]:
    """Command lines with one value in another's place; the same at every call."""
    draw = random.Random(0)
    every = [
        (*TINY, *composition, key)
        for composition in COMPOSITIONS
        for key in keys(compose([*TINY, *composition])[0].config)
        if key.partition(".")[0] not in NOT_TRIED
    ]
    return [(*words, f"{key}={draw.choice(VALUES)}") for *words, key in draw.sample(every, count)]


def wrong(line: tuple[str, ...], folder: Path) -> str:
    """What is wrong with the answer to `line`; empty: nothing."""
    said, printed, took_s, runs = answer(*line, f"results={folder}")
    if took_s > MOST_S:
        return f"it took {took_s:.1f} s"
    if said is None:
        return "; ".join(filter(None, map(failure, runs)))
    if (folder / "adhoc").exists():
        return "it left something"
    plain = said.startswith("harness: ") and "\n" not in said and not printed
    return "" if plain and not any(each in said for each in RAW) else f"{printed}{said}"


def failure(settings: Settings) -> str:
    """How a run of settings that were let pass ends, in virtual time; empty: well."""
    if not settings.build("network").in_process:
        return ""
    outcome = run.perform(settings)
    return "" if outcome.state == "succeeded" else f"it started, and then: {outcome.error}"


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(SOME, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
        pytest.param(ALL, marks=[pytest.mark.faults, pytest.mark.timeout(3600)]),
    ],
)
def test_bad_settings_are_refused_in_one_line_or_run(count: int, tmp_path: Path) -> None:
    found = {}
    for number, line in enumerate(lines(count)):
        try:
            told = wrong(line, tmp_path / str(number))
        except BaseException as error:
            told = f"a traceback: {error!r}"
        if told:
            found[" ".join(line[len(TINY) :])] = told
    assert not found, "\n".join(f"{line}: {told}" for line, told in found.items())
