"""Commands that repeat an experiment's runs, as the user typed them."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from hydra.errors import HydraException

from harness.config import sweep
from harness.config.typed import BadSetting
from harness.records import printable
from harness.reporting.analysis import load
from harness.reporting.page import surroundings

PROGRAM = ["python", "-m", "harness"]
MARK = "# from the files of the run, read it before you run it: "


class Commands(NamedTuple):
    """Commands for the runs of one page."""

    sweep: str  # one command for exactly these runs; "" if there is none
    of_run: dict[str, str]  # by path
    elsewhere: int  # number of runs of another commit or machine


def of_runs(paths: Sequence[str]) -> Commands:
    """Return the commands that repeat the runs in the directories `paths`, if these recorded them.

    A command of another program, or one that names a class, could run foreign code. It is quoted
    behind MARK, so that a shell ignores it when it is pasted.
    """
    typed = {path: str(load.config(path).get("typed") or "") for path in paths}
    words = {path: _overrides(line) for path, line in typed.items()}
    of_run = {
        path: shlex.join([*PROGRAM, *own]) if (own := words[path]) is not None
        else MARK + shlex.quote(printable.line(typed[path]))
        for path in paths if typed[path]
    }  # fmt: skip
    known = [own for own in words.values() if own is not None]
    whole = _sweep(known) if paths and len(known) == len(paths) else ""
    return Commands(whole, of_run, surroundings.elsewhere(paths))


def _overrides(typed: str) -> list[str] | None:
    """Return the overrides of a `python -m harness` command without classes; None otherwise."""
    with suppress(ValueError):  # raised for an unclosed quote
        words = shlex.split(typed) if typed.isprintable() else []
        overrides = words[len(PROGRAM) :]
        plain = all(word[0] != "-" and "_target_" not in word for word in overrides if word)
        if words[: len(PROGRAM)] == PROGRAM and plain and all(overrides):
            return overrides
    return None


def _sweep(runs: list[list[str]]) -> str:
    """Return one command that makes exactly `runs`, lists of overrides; "" if there is none."""
    runs = [[word for word in run if word != sweep.ALONE] for run in runs]
    common = [word for word in runs[0] if all(word in run for run in runs)]
    values: dict[str, dict[str, None]] = {}  # in order, each once
    for key, _, value in (word.partition("=") for run in runs for word in run):
        values.setdefault(key, {})[value] = None
    product = ["-m", *(f"{key}={','.join(of_key)}" for key, of_key in values.items())]
    wanted = {frozenset(run) for run in runs}
    for line in (common, product):
        with suppress(HydraException, BadSetting), sweep.hydra():
            if {frozenset(choice) for choice in sweep.choices(line)} == wanted:
                return shlex.join([*PROGRAM, *line])
    return ""
