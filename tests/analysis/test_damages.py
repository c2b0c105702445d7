"""Damages drawn from a seed, over the files of a run and the kinds of damage: no report fails.

The damaged run is left out by name or its damage changes no number that is read; all other runs are
reported. `make faults` draws 100 and prints their counts.
"""

import json
import os
import random
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from harness.records import status
from harness.records.run_directory import Bin, Span, Table, Watched
from harness.reporting import measurable
from harness.reporting.analysis import load, untrusted
from tests import records_by_hand as by_hand
from tests.door import door

HANGS_S = 60  # a report of these runs takes 2 s
ODD: list[Any] = [None, True, -1, 0, 10**12, 10**400, 1e308, -1e308, float("nan"), float("inf"), "",
                  "x", "=1+1", "\x1b]0;x\x07", "\0", "a\nb", [], {}, [[[]]], {"a": {"b": [1]}},
                  "9" * 5000, list(range(10_000))]  # fmt: skip
CELLS = ["", "nan", "inf", "-inf", "-1", "1e308", "1e400", "9" * 12, "9" * 400, "x", "\0", "=1",
         '"']  # fmt: skip
OUTCOMES = ["tracebacks", "hangs", "writes outside", "other runs left out", "no page"]


class Damage(NamedTuple):
    """A kind of damage: what it does to a file, given a source of chance."""

    name: str
    apply: Callable[[Path, random.Random], None]
    is_sealed: bool  # the manifest fits the damaged file, as somebody else may write it


def bytes_changed(change: Callable[[bytes, random.Random], bytes]) -> Callable:
    def apply(path: Path, chance: random.Random) -> None:
        path.write_bytes(change(path.read_bytes(), chance))

    return apply


def linked(target: str) -> Callable[[Path, random.Random], None]:
    def apply(path: Path, chance: random.Random) -> None:
        path.unlink()
        path.symlink_to(target if target.startswith("/") else path.parent / target)

    return apply


def renamed(path: Path, chance: random.Random) -> None:
    path.rename(path.with_name(f"{path.stem}1{path.suffix}"))


def folder_instead(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def pipe_instead(path: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def odd_value(path: Path, chance: random.Random) -> None:
    """Put something odd in the place of any cell, or of any value of any depth."""
    if path.suffix == ".csv":
        lines = [line.split(",") for line in path.read_text().splitlines()]
        row = chance.choice(lines)
        row[chance.randrange(len(row))] = chance.choice(CELLS)
        path.write_text("".join(",".join(line) + "\n" for line in lines))
    elif path.suffix == ".jsonl":
        events = [json.loads(line) for line in path.read_text().splitlines()]
        _replace(chance.choice(events), chance)
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    else:
        content = yaml.safe_load(path.read_text())
        _replace(content, chance)
        path.write_text(json.dumps(content))


def _replace(content: Any, chance: random.Random) -> None:
    places = list(_places(content))
    holder, key = chance.choice(places)
    if chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = chance.choice(ODD)


def _places(content: Any) -> Any:
    for key in list(content) if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], (dict, list)):
            yield from _places(content[key])


def columns_lost(path: Path, chance: random.Random) -> None:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    at = chance.randrange(len(lines[0]))
    path.write_text("".join(",".join(line[:at] + line[at + 1 :]) + "\n" for line in lines))


def rows_lost(path: Path, chance: random.Random) -> None:
    path.write_text(path.read_text().partition("\n")[0] + "\n")


DAMAGES = [
    Damage("removed", lambda path, chance: path.unlink(), False),
    Damage("removed, sealed", lambda path, chance: path.unlink(), True),
    Damage("renamed", renamed, True),
    Damage("a folder", folder_instead, False),
    Damage("a pipe", pipe_instead, False),
    Damage("a link to a device", linked("/dev/zero"), False),
    Damage("a link to itself", linked("summary.json"), False),
    Damage("empty", bytes_changed(lambda data, chance: b""), True),
    Damage("cut", bytes_changed(lambda data, chance: data[: chance.randrange(len(data))]), True),
    Damage("NUL bytes", bytes_changed(lambda data, chance: data + b"\0" * 4096), True),
    Damage("not UTF-8", bytes_changed(lambda data, chance: b"\xff\xfe" + data), True),
    Damage("doubled", bytes_changed(lambda data, chance: data + data), True),
    *[Damage("an odd value", odd_value, True)] * 12,  # which is many kinds
]
OF_TABLES = [Damage("a column lost", columns_lost, True), Damage("rows lost", rows_lost, True)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two settings with every file that a report reads."""
    folder = by_hand.sweep(tmp_path_factory.mktemp("whole") / "by_hand", {"topk_0.1": 0.5}, seeds=1)
    by_hand.contended(folder / "contended-0")
    by_hand.contended(folder / "contended-1", "topk_0.1")
    for name in ("contended-0", "contended-1"):
        add(folder / name, "watched.csv", Watched(0, 0, "cut0", 0.1, 0.5, 0.4))
        add(folder / name, "histograms.csv", Bin(0, 0, "cut0", -1, 0, 5, 0.1, 0.5),
            Bin(0, 0, "cut0", 0, 1, 6, 0.1, 0.5))  # fmt: skip
        add(folder / name, "timeline.csv", Span(9, 0, "forward", -1, 19.0, 20.0))
        by_hand.seal(folder / name)
    return folder


def add(run: Path, name: str, *rows: Any) -> None:
    table = Table(run, name)
    table.header()
    table.append(*rows)
    table.close()


class Hangs(Exception):
    """A report took far longer than it needs."""


def outcome(
    folder: Path, damaged: str, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """Return what is wrong with a report of `folder`, one of OUTCOMES or "", and its last line."""

    def hangs(number: int, frame: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_S)
    try:
        door("report", folder)
        runs = load.runs(folder)
    except Hangs:
        return "hangs", ""
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "tracebacks", f"{type(error).__name__}: {error} at {frame.filename}:{frame.lineno}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if sorted(os.listdir(outside)) != ["by_hand", "mine"]:
        return "writes outside", ""
    others = runs[~runs.run_id.isin([damaged])]
    if len(others) != 2 or (others.left_out != "").any():
        return "other runs left out", "; ".join(others.left_out)
    return ("", "") if (folder / "report" / "index.html").is_file() else ("no page", "")


@pytest.mark.parametrize(
    "seed, count",
    [(1, 4), pytest.param(2, 100, marks=[pytest.mark.faults, pytest.mark.timeout(3600)])],
)
def test_no_damage_ends_a_report(seed, count, whole, tmp_path, monkeypatch, capsys):
    chance = random.Random(int(os.environ.get("DAMAGES_SEED", seed)))
    drawn: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {name: [] for name in OUTCOMES}
    for at in range(int(os.environ.get("DAMAGES", count))):
        outside = tmp_path / f"{at}"
        outside.mkdir()
        (outside / "mine").write_text("mine")
        folder = shutil.copytree(whole, outside / "by_hand")
        run = folder / chance.choice(["contended-0", "contended-1", "topk_0.1-0"])
        path = chance.choice(sorted(run.iterdir()))
        damage = chance.choice(DAMAGES + OF_TABLES * (path.suffix == ".csv"))
        damage.apply(path, chance)
        if damage.is_sealed and path.name != "status.json":
            by_hand.seal(run)
        drawn[damage.name] += 1
        said, more = outcome(folder, run.name, outside, monkeypatch)
        if said:
            wrong[said].append(f"{at}: {damage.name} of {run.name}/{path.name}: {more}"[:400])
        else:
            shutil.rmtree(outside)
    with capsys.disabled():
        if count >= 100:
            print("\n" + table(drawn, wrong))
    assert not any(wrong.values()), wrong


def table(drawn: Counter[str], wrong: dict[str, list[str]]) -> str:
    """Counts of damages by kind, and of reports that went wrong."""
    rows = [
        *sorted(drawn.items()),
        ("all", drawn.total()),
        *((k, len(v)) for k, v in wrong.items()),
    ]
    return "\n".join(f"{name:22}{count:5}" for name, count in rows)


def as_ordinary_user(do: Callable[[], int]) -> int:
    """Exit status of `do`, done by a user whom file permissions bind."""
    if os.getuid():
        return do()
    child = os.fork()
    if not child:
        status = 99
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            status = do()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "steps.csv", "links.csv", "."])
def test_what_may_not_be_read_is_left_out_by_name(name, whole, monkeypatch, capfd):
    """The folder of runs is read from where every user may: tests' own folders are closed."""
    with tempfile.TemporaryDirectory(prefix="foreign-", dir="/var/tmp") as place:
        folder = shutil.copytree(whole, Path(place) / "by_hand")
        for path in [Path(place), folder, *folder.rglob("*")]:
            path.chmod(0o777)
        closed = folder / "contended-1" / name
        closed.chmod(0)
        assert as_ordinary_user(partial(door, "report", folder)) == 1
        said = capfd.readouterr().out
        closed.chmod(0o700)
        assert "1 of 3 runs are left out" in said and "contended-1" in said
        assert "Permission denied" in said and (folder / "report" / "index.html").is_file()


def test_claims_say_what_they_leave_out(whole, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(whole, tmp_path / "by_hand")
    by_hand.tear(folder / "contended-0" / "steps.csv")
    assert door("study", "claims", folder) == 1
    said = capsys.readouterr().out
    assert "1 of 3 runs are left out" in said and "(contended-0)" in said


@pytest.mark.parametrize(
    "module, name",
    [(status, "state"), (untrusted, "config"), (untrusted, "damage"), (untrusted, "check_tables"),
     (load, "steps"), (load, "evaluations"), (load, "links"), (load, "config")],
)  # fmt: skip
def test_a_folder_that_is_removed_while_it_is_read_is_left_out(
    module, name, whole, tmp_path, monkeypatch
):
    folder, real = shutil.copytree(whole, tmp_path / "by_hand"), getattr(module, name)

    def removing(path: Path | str, *more: Any) -> Any:
        if "contended-1" in str(path):
            shutil.rmtree(path, ignore_errors=True)
        return real(path, *more)

    monkeypatch.setattr(module, name, removing)
    found = measurable.runs(folder).set_index("run_id").left_out
    assert found["contended-1"] and (found.drop("contended-1") == "").all()


@pytest.mark.parametrize("lost", ["seed", "method"])
def test_a_run_that_cannot_be_compared_is_left_out(lost, whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "by_hand")
    file = folder / "contended-1" / "config.yaml"
    config = yaml.safe_load(file.read_text())
    parts = ("method", "compressor", "controller") if lost == "method" else (lost,)
    file.write_text(yaml.safe_dump({k: v for k, v in config.items() if k not in parts}))
    by_hand.seal(folder / "contended-1")
    found = measurable.runs(folder).set_index("run_id").left_out
    assert found["contended-1"] == f"config.yaml is damaged: it says no {lost}"
    assert (found.drop("contended-1") == "").all()
