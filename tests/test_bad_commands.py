"""A table of commands that are wrong: each is told what to write, shortly, and starts nothing.

The table is bad_commands.yaml. They run in this process, up to where anything would start; of each
command one runs as a process of its own.
"""

import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from harness.advise import stages
from harness.calibrate import compression, links
from harness.cli import doctor
from harness.config import search_path
from harness.reproduce import __main__ as reproduce
from harness.runner import run
from tests.door import door
from tests.launching import completed

TABLE: dict[str, dict[str, str]] = yaml.safe_load(
    (Path(__file__).parent / "bad_commands.yaml").read_text()
)
BAD = {command: answer for rows in TABLE.values() for command, answer in rows.items()}
COMMANDS = {"harness", "report", "advise", "study", "doctor"}
MOST_LINES = 10
OWN = ("mine", "badmine")  # modules of the folder below
MINE = """from compressors.base import Compressor


class Rounded(Compressor):
    def __init__(self): ...


class Nothing: ...
"""
FILES = {
    "here.txt": "a file\n", "empty_dir/.keep": "", "damaged_run/x/abc/status.json": "{",
    "damaged.csv": "time_s,rate_mbit\n0,10\n1,\n", "empty.csv": "", "words.csv": "hello\nworld\n",
    "backwards.csv": "time_s,rate_mbit\n0,10\n2,10\n1,10\n",
    "negative.csv": "time_s,rate_mbit\n0,10\n1,-10\n", "broken.yaml": "a: [1, 2\nb: }\n",
    "keys.yaml": "title: x\n", "own_clash/model/mlp.yaml": "_target_: x.Y\n",
    "own_broken/model/bad.yaml": "_target_: [x\nb: }\n", "own_empty/readme": "",
    "own_wrong/compressor/absent.yaml": "_target_: mine.Absent\n",
    "own_wrong/compressor/nomodule.yaml": "_target_: nomine.Absent\n",
    "own_wrong/compressor/argument.yaml": "_target_: mine.Rounded\nbits: 3\n",
    "own_wrong/compressor/notone.yaml": "_target_: mine.Nothing\n",
    "own_wrong/compressor/raises.yaml": "_target_: badmine.X\n",
    "own_wrong/model/notarget.yaml": "hidden: 3\n", "own_wrong/profile/list.yaml": "- 1\n- 2\n",
    "own_wrong/profile/empty.yaml": "",
    "own_wrong/method/defaults.yaml": "defaults:\n  - override /compressor: nosuch\n",
    "own_wrong/controller/unit.yaml": "_target_: controllers.fixed.Fixed\ndensity: 10 percent\n",
    "own_tabs/profile/tabs.yaml": "_target_: profiles.static.Static\n\trate_mbit: 3\n",
    "mine.py": MINE, "badmine.py": "import nosuchpackage\n",
}  # fmt: skip
BYTES = {
    "binary.csv": bytes(range(256)),
    "own_utf/profile/utf.yaml": b"_target_: \xff\xfe\n",
}
AS_PROCESSES = (
    "harness methd=topk", "harness +experiment=nosuch", "report nosuch", "study claims nosuch",
    "advise target.value=90%", "harness draw=true profile=nosuch", "study reproduce nosuch",
    "doctor methd=topk", "doctor --clean --nosuch", "doctor --calibrate --name a-b",
    "study fidelity --cells words.csv",
)  # fmt: skip


class Answer(NamedTuple):
    status: int
    said: str


def started(*_: object, **__: object) -> None:
    pytest.fail("it started")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of them run, with whatever they name."""
    here = tmp_path_factory.mktemp("bad_commands")
    for name, content in ({k: v.encode() for k, v in FILES.items()} | BYTES).items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    return here


@pytest.fixture
def warm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """This process, as that of a command which may start nothing."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for owner, name in (
        (run, "perform"), (links, "measured"), (compression, "measured"), (stages, "planned"),
        (reproduce, "perform"),
        (doctor, "examine"), (os, "fork"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, started)
    yield monkeypatch
    os.environ.pop(search_path.OWN, None)
    for name in OWN:
        sys.modules.pop(name, None)


def answer(words: list[str]) -> Answer:
    """Of a command in this process."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = door(*words[words[0] == "harness" :])
    return Answer(status, said.getvalue())


def left(folder: Path) -> set[Path]:
    """What is in the folder, but for what Python makes of its modules."""
    return {each for each in folder.rglob("*") if "__pycache__" not in each.parts}


def check(bad: str, found: Answer) -> None:
    assert found.status in (1, 2), found.said
    assert BAD[bad] in found.said
    assert len(found.said.splitlines()) <= MOST_LINES and "Traceback" not in found.said


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_command_is_told_what_to_write_and_starts_nothing(bad, folder, warm):
    before = left(folder)
    check(bad, answer(shlex.split(bad)))
    assert left(folder) == before


@pytest.mark.parametrize("bad", AS_PROCESSES)
def test_as_a_process_it_ends_so_too(bad: str, folder: Path) -> None:
    before = left(folder)
    words = shlex.split(bad.removeprefix("harness "))
    told = completed([sys.executable, "-m", "harness", *words], cwd=folder)
    check(bad, Answer(told.returncode, told.stdout + told.stderr))
    assert left(folder) == before


def test_the_table_has_every_command_and_every_group() -> None:
    assert len(BAD) >= 200 and {each.split()[0] for each in BAD} == COMMANDS
    assert {each.split()[0] for each in AS_PROCESSES} == COMMANDS
    said = " ".join(BAD)
    groups = set(search_path.groups()) - {"experiment"}
    assert all(f" {group}" in said for group in groups), groups
