"""Settings that nobody thought of: each is refused in one line, or runs; nothing else happens.

Every key of some compositions is set to values of every kind. What the check lets pass is run in
virtual time, two steps of it: what passes the check must not fail afterwards. Values that no key
can have (`NEVER`) are refused: nothing starts, and the answer is short and names the key.
What an answer says to write is written: it is accepted, or refused later for something else.
"""

import io
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.cli import main as command
from harness.cli import run as performing
from harness.config.scales import Described, compose
from harness.config.settings import Settings
from harness.runner import run, signals
from tests.advice import Words, by_hand, followed, is_later

TINY = ("workers=2", "steps=2", "model=mlp", "dataset=digits", "network=simulated", "report=false")
COMPOSITIONS = ((), ("method=topk",), ("method=dc2_da2", "profile=fluctuating"),
                ("method=powersgd", "profile=markov"),
                ("parallel=pipeline", "parallel.stages=2", "profile=ornstein_uhlenbeck"),
                ("method=netsense", "profile=contended"), ("method=covap", "profile=trace"),
                ("method=accordion", "profile=lossy"),
                ("network=netns", "profile=steps", "method=pace"),
                ("network=dumbbell", "profile=degrading", "method=kimad"))  # fmt: skip
VALUES = (
    "null", "{}", "[]", "abc", "''", "-1", "0", "1.5", "nan", "inf", "-inf", "1e30", "true",
    "18446744073709551616", "{a: 1}", "[1, 2]", "os.getcwd", "../../evil",
)  # fmt: skip
NEVER = {  # by kind: what no key of a run can be
    "a part that is none": "{_target_: os.mkdir, path: MADE}",
    "arguments of Hydra": "{_target_: pathlib.Path, _args_: [MADE], _partial_: true}",
    "control characters": "'a\nb\x1b[2J'", "too long a text": "x" * 5000,
    "a number without end": "1e400", "below everything": "-1e300", "too deep": "[" * 60 + "]" * 60,
    "a key that there is not": "${nosuch.key}", "itself": "${KEY}", "no value": "???",
    "a sweep": "1,2", "an open bracket": "[1",
}  # fmt: skip
MOST_LINES = 10
NOT_TRIED = ("results", "report", "plan")  # where the test writes; what starts no run
RAW = ("Error:", "Exception:", "Traceback")  # how Python names an error
MOST_S = 5.0  # of processor time
ALL, SOME = 500, 20
ALL_NEVER, SOME_NEVER = 1000, 100  # refusals, which take little
ALL_ADVICE, SOME_ADVICE = 500, 25  # of each of two kinds of lines
MOST_WRONG = 2  # advice of 500 refusals


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
        patch.setattr(performing, "_perform", started)
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


def hold(lines: list[Words], wrong: Callable[[Words, Path], str], folder: Path) -> None:
    """Fail with every line that something is `wrong` with, or that ends in a traceback."""
    found = {}
    for number, line in enumerate(lines):
        try:
            told = wrong(line, folder / str(number))
        except BaseException as error:
            told = f"a traceback: {error!r}"
        if told:
            found[" ".join(line[len(TINY) :])[:200]] = told[:500]
    assert not found, "\n".join(f"{line}: {told}" for line, told in found.items())


@pytest.mark.parametrize("count", [
    pytest.param(SOME, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    pytest.param(ALL, marks=[pytest.mark.faults, pytest.mark.timeout(3600)]),
])  # fmt: skip
def test_bad_settings_are_refused_in_one_line_or_run(count: int, tmp_path: Path) -> None:
    hold(lines(count), wrong, tmp_path)


@cache
def refused_lines(count: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Command lines, drawn by `seed`, with a value that no key can have; the key comes last."""
    draw = random.Random(seed)
    every = [
        (composition, key)
        for composition in COMPOSITIONS
        for key in keys(compose([*TINY, *composition])[0].config)
        if key.partition(".")[0] not in (*NOT_TRIED, "experiment") and key[-8:] != "_target_"
    ]
    drawn = ((*draw.choice(every), draw.choice(list(NEVER.values()))) for _ in range(count))
    return [
        (*TINY, *composition, f"{key}={value.replace('KEY', key)}")
        for composition, key, value in drawn
    ]


def unrefused(line: tuple[str, ...], folder: Path) -> str:
    """What is wrong with the answer to `line`, which must be refused; empty: nothing."""
    key = line[-1].partition("=")[0]
    words = [each.replace("MADE", str(folder / "made")) for each in line]
    said, printed, took_s, _ = answer(*words, f"results={folder / 'results'}")
    if said is None:
        return "it would start"
    if folder.exists():
        return f"it left {list(folder.rglob('*'))}"
    if took_s > MOST_S:
        return f"it took {took_s:.1f} s"
    text = f"{printed}{said}"
    names_it = any(part in text for part in (key, key.rpartition(".")[2]))
    short = len(text.splitlines()) <= MOST_LINES and len(text) < 1500
    return "" if names_it and short and not any(each in text for each in RAW) else text


@pytest.mark.parametrize("count", [
    pytest.param(SOME_NEVER, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    pytest.param(ALL_NEVER, marks=[pytest.mark.faults, pytest.mark.timeout(3600)]),
])  # fmt: skip
def test_what_no_key_can_be_is_refused_by_a_short_answer_that_names_it(count, tmp_path):
    hold(refused_lines(count), unrefused, tmp_path)


def valued(section: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Keys of a run that are no sections, with their values."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from valued(value, f"{prefix}{key}.")
        elif key != "_target_" and f"{prefix}{key}" not in (*NOT_TRIED, "experiment"):
            yield f"{prefix}{key}", value


def written_by_hand(count: int, seed: int = 0) -> list[Words]:
    """Bad command lines as people write them, drawn by `seed`; the bad word comes last."""
    every = [
        (composition, key, value)
        for composition in COMPOSITIONS
        for key, value in valued(compose([*TINY, *composition])[0].config)
    ]
    lines = by_hand(every, seed)
    return [(*TINY, *words) for words in random.Random(seed).sample(lines, min(count, len(lines)))]


def misleading(line: Words, said: str, results: str) -> str:
    """Describe the first line that the refusal `said` of `line` advises in vain; "" if all help."""
    for words in followed(line, said):
        word = words[-1] if len(words) >= len(line) else ""
        again = answer(*words, results).said
        if again is not None and not is_later(word, said, again):
            return f"{said}\n    {' '.join(words[len(TINY) :])[:200]}: {again[:300]}"
    return ""


@pytest.mark.parametrize("count", [
    pytest.param(SOME_ADVICE, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    pytest.param(ALL_ADVICE, marks=[pytest.mark.faults, pytest.mark.timeout(3600)]),
])  # fmt: skip
def test_what_an_answer_says_to_write_is_accepted_or_refused_later(count, tmp_path):
    results, advised, wrong_ones, raw = f"results={tmp_path}", 0, {}, {}
    for line in [*refused_lines(count, seed=1), *written_by_hand(count)]:
        said = answer(*line, results).said
        if said is None:
            continue
        shown = " ".join(line[len(TINY) :])[:200]
        if any(each in said for each in RAW):
            raw[shown] = said[:500]
        advised += bool(followed(line, said))
        if told := misleading(line, said, results):
            wrong_ones[shown] = told[:1000]
    print(f"{2 * count} lines, {advised} with advice, {len(wrong_ones)} misleading")
    assert advised > count / 2 and not raw, raw
    allowed = MOST_WRONG * 2 * count // 500
    assert len(wrong_ones) <= allowed, "\n".join(map(": ".join, wrong_ones.items()))
