"""A table of commands that are wrong: each is told what to write, shortly, and starts nothing.

The table is bad_commands.yaml. They run in this process, up to where anything would start; of each
command one runs as a process of its own.
"""

import importlib
import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml

from harness import signals
from harness.advise import stages
from harness.calibrate import compression, links
from harness.config import search_path
from harness.runner import run
from tests.launching import completed

TABLE: dict[str, dict[str, str]] = yaml.safe_load(
    (Path(__file__).parent / "bad_commands.yaml").read_text()
)
BAD = {command: answer for rows in TABLE.values() for command, answer in rows.items()}
MODULES = {"harness": "harness.__main__"}
MODULES |= {name: f"harness.{name}" for name in ("report", "claims", "preview")}
MODULES |= {"clean": "harness.clean"}
MODULES |= {
    name: f"harness.{name}.__main__"
    for name in ("advise", "reproduce", "doctor", "calibrate", "fidelity")
}
MOST_LINES = 10
OWN = ("mine", "badmine")  # modules of the folder below
MINE = """from compressors.base import Compressor


class Rounded(Compressor):
    def __init__(self): ...


class Nothing: ...
"""
FILES = {
    "here.txt": "a file\n",
    "empty_dir/.keep": "",
    "damaged_run/x/abc/status.json": "{",
    "damaged.csv": "time_s,rate_mbit\n0,10\n1,\n",
    "empty.csv": "",
    "words.csv": "hello\nworld\n",
    "backwards.csv": "time_s,rate_mbit\n0,10\n2,10\n1,10\n",
    "negative.csv": "time_s,rate_mbit\n0,10\n1,-10\n",
    "broken.yaml": "a: [1, 2\nb: }\n",
    "keys.yaml": "title: x\n",
    "own_clash/model/mlp.yaml": "_target_: x.Y\n",
    "own_broken/model/bad.yaml": "_target_: [x\nb: }\n",
    "own_empty/readme": "",
    "own_wrong/compressor/absent.yaml": "_target_: mine.Absent\n",
    "own_wrong/compressor/nomodule.yaml": "_target_: nomine.Absent\n",
    "own_wrong/compressor/argument.yaml": "_target_: mine.Rounded\nbits: 3\n",
    "own_wrong/compressor/notone.yaml": "_target_: mine.Nothing\n",
    "own_wrong/compressor/raises.yaml": "_target_: badmine.X\n",
    "own_wrong/model/notarget.yaml": "hidden: 3\n",
    "own_wrong/profile/list.yaml": "- 1\n- 2\n",
    "own_wrong/profile/empty.yaml": "",
    "own_wrong/method/defaults.yaml": "defaults:\n  - override /compressor: nosuch\n",
    "own_wrong/controller/unit.yaml": "_target_: controllers.fixed.Fixed\ndensity: 10 percent\n",
    "own_tabs/profile/tabs.yaml": "_target_: profiles.static.Static\n\trate_mbit: 3\n",
    "mine.py": MINE,
    "badmine.py": "import nosuchpackage\n",
}
BYTES = {
    "binary.csv": bytes(range(256)),
    "own_utf/profile/utf.yaml": b"_target_: \xff\xfe\n",
}
AS_PROCESSES = (
    "harness methd=topk", "harness +experiment=nosuch", "report nosuch", "claims nosuch",
    "advise target.value=90%", "preview profile=nosuch", "reproduce nosuch",
    "doctor methd=topk", "clean --nosuch",
    "calibrate --name a-b", "fidelity --cells words.csv",
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


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleType]:
    return {name: importlib.import_module(path) for name, path in MODULES.items()}


@pytest.fixture
def warm(
    folder: Path, modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    """This process, as that of a command which may start nothing."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(signals, "stop_in_order", lambda: None)
    for owner, name in (
        (run, "perform"), (links, "measured"), (compression, "measured"), (stages, "planned"),
        (modules["reproduce"], "perform"),
        (modules["doctor"], "examine"), (os, "fork"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, started)
    yield monkeypatch
    os.environ.pop(search_path.OWN, None)
    for name in OWN:
        sys.modules.pop(name, None)


def answer(main: ModuleType, words: list[str], warm: pytest.MonkeyPatch) -> Answer:
    """Of a command in this process."""
    warm.setattr(sys, "argv", words)
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            status = main.main()
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code)
            status = 1 if isinstance(ended.code, str) else ended.code
    return Answer(status or 0, said.getvalue())


def left(folder: Path) -> set[Path]:
    """What is in the folder, but for what Python makes of its modules."""
    return {each for each in folder.rglob("*") if "__pycache__" not in each.parts}


def check(bad: str, found: Answer) -> None:
    assert found.status in (1, 2), found.said
    assert BAD[bad] in found.said
    assert len(found.said.splitlines()) <= MOST_LINES and "Traceback" not in found.said


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_command_is_told_what_to_write_and_starts_nothing(
    bad: str, folder: Path, modules: dict[str, ModuleType], warm: pytest.MonkeyPatch
) -> None:
    words, before = shlex.split(bad), left(folder)
    check(bad, answer(modules[words[0]], words, warm))
    assert left(folder) == before


@pytest.mark.parametrize("bad", AS_PROCESSES)
def test_as_a_process_it_ends_so_too(bad: str, folder: Path) -> None:
    name, *words = shlex.split(bad)
    module, before = "harness" if name == "harness" else f"harness.{name}", left(folder)
    told = completed([sys.executable, "-m", module, *words], cwd=folder)
    check(bad, Answer(told.returncode, told.stdout + told.stderr))
    assert left(folder) == before


def test_the_table_has_every_command_and_every_group() -> None:
    assert len(BAD) >= 200 and {each.split()[0] for each in BAD} == set(MODULES)
    assert {each.split()[0] for each in AS_PROCESSES} == set(MODULES)
    said = " ".join(BAD)
    groups = set(search_path.groups()) - {"experiment"}
    assert all(f" {group}" in said for group in groups), groups
