r"""Numbers that a pattern's groups matched in a line of output, read whole or not at all.

A pattern such as `step (\d+)` matches the `1` of `1,000` and the `0` of `0.25`. The steps of a run
are counted by these numbers, so a part of one must not pass for the whole.
"""

import re
from collections.abc import Iterator
from itertools import islice
from math import isfinite
from typing import NamedTuple

WHOLE = ("step", "samples")  # groups that must be whole numbers from 0
MOST_COUNT = 2**53  # above, a float is not every whole number
COUNTERS = ("step", "epoch")  # groups that may be written `3/5`
SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
NUMBER = re.compile(
    r"(?:(?<![\w.)\]])[+-])?"
    r"(?:[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)|(?<![\d_])[1-9]\d{0,2}(?:_\d{3})+(?![\d_])|\d+|(?=\.\d))"
    r"(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKMG](?!\w))?"
)
AROUND = " \t,;:()[]{}|\"'"  # that `\S+` matches beside a number
NO_NUMBER = re.compile(r"(?<!\w)[+-]?(?:nan|inf|infinity)(?!\w)", re.IGNORECASE)
SIGN = re.compile(r"(?<![\w.)\]])[+-](?=[\d.])")
MOST_TRIED, MOST_CHARACTERS = 8, 1000  # numbers of a line, and its length
PART_OF_ALL = re.compile(r"(\d+)\s*/\s*\d+")


def values(match: re.Match[str]) -> dict[str, float]:
    """Return the numbers of the groups that took part in `match`.

    Raise ValueError with the reason if no group did, or if a group's text is no number of its kind.
    """
    texts = {name: text for name, text in match.groupdict().items() if text is not None}
    if not texts:
        raise ValueError("no named group of the pattern took part")
    return {name: _value(match, name, text) for name, text in texts.items()}


def _value(match: re.Match[str], name: str, text: str) -> float:
    number = _whole_number(match, name)
    if number is None and name in COUNTERS and (part := PART_OF_ALL.fullmatch(text.strip(AROUND))):
        number = float(part[1])
    if number is None:
        raise ValueError(f"{name} is no number")
    if name in WHOLE and not (0 <= number < MOST_COUNT and number == number // 1):
        raise ValueError(f"{name} is no whole number from 0")
    if name in ("time", "epoch") and not isfinite(number):
        raise ValueError(f"{name} is no finite number")
    return number


def _whole_number(match: re.Match[str], name: str) -> float | None:
    """Return the number that contains the group's text, or None."""
    line, (start, end) = match.string, match.span(name)
    text = line[start:end]
    start += len(text) - len(text.lstrip(AROUND))
    text = text.strip(AROUND)
    end = start + len(text)
    around = (each for each in NUMBER.finditer(line) if each.start() <= start < end <= each.end())
    number = next(around, None)
    if number and (number.span() == (start, end) or _is_by_chance(match, name, number)):
        return _value_of(number[0])
    try:
        return float(text.removesuffix("."))
    except ValueError:
        return None


def _is_by_chance(match: re.Match[str], name: str, number: re.Match[str]) -> bool:
    r"""Return True if the pattern also matches with only digits in place of `number`.

    Then the pattern does not require the separators: `1,000` is one number for `step (\d+)`, and
    two columns for `^(\d+),(\d+)`.
    """
    line, start = match.string, number.start()
    plain = line[:start] + re.sub(r"\D", "", number[0]) + line[number.end() :]
    again = match.re.search(plain, min(match.start(), start))
    return again is not None and again[name] is not None


class Written(NamedTuple):
    """A line that matches a pattern, with its numbers written for it."""

    line: str
    is_same: bool  # the numbers have the values that they had


def written_for(pattern: re.Pattern[str], line: str) -> Written | None:
    r"""Rewrite the numbers of `line` so that it matches `pattern`. None if that does not help.

    `step (\d+) loss ([\d.]+)` has no place for a step `1,000` or a loss `-0.5` or `nan`. Such a
    line reports a step as its neighbours do. The first of these can be read all the same.
    """
    if pattern.search(line):
        return Written(line, is_same=True)
    if len(line) > MOST_CHARACTERS:
        return None
    return next((each for each in _rewritten(line) if pattern.search(each.line)), None)


def _rewritten(line: str) -> Iterator[Written]:
    plain = NUMBER.sub(_in_digits, line)
    if plain != line:
        yield Written(plain, is_same=True)
    plain = SIGN.sub("", plain)
    for usual in ("1", "1.5") if NO_NUMBER.search(plain) else ("1",):
        finite = NO_NUMBER.sub(usual, plain)
        yield Written(finite, is_same=False)
        for number in islice(NUMBER.finditer(finite), MOST_TRIED):
            for other in ("1", "1.5"):
                rewritten = finite[: number.start()] + other + finite[number.end() :]
                yield Written(rewritten, is_same=False)


def _in_digits(number: re.Match[str]) -> str:
    """Return the number without separators, exponent and scale."""
    value = f"{_value_of(number[0]):.12f}".rstrip("0").rstrip(".")
    return number[0] if re.fullmatch(r"[+-]?\d*(\.\d+)?", number[0]) else value


def _value_of(number: str) -> float:
    digits = re.sub("[,_]", "", number)
    scale = SCALES.get(digits[-1], 1.0)
    return round(float(digits.rstrip("kKMG")) * scale, 6) if scale > 1 else float(digits)
