"""docs/own_parts.md, done as it says; and what is said of parts that do not fit."""

import os
import re
import sys
from pathlib import Path

import pytest

from harness.config import parts
from harness.config.search_path import OWN as OWN_CHOICES
from tests.launching import afresh
from tests.test_how_to import COMMANDS, FILE
from tests.test_refused import refusal

ROOT = Path(__file__).resolve().parents[1]
DOC = (ROOT / "docs/own_parts.md").read_text()
STARTED = ("steps.csv", "status.json")


@pytest.fixture
def mine(tmp_path):
    """A folder with the files of the how-to."""
    for name, content in FILE.findall(DOC):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def told(where: Path, *words: str, module: str = "harness") -> tuple[int, str]:
    known = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = afresh([sys.executable, "-m", module, *words], cwd=where, env=known)
    return done.returncode, done.stdout + done.stderr


def test_parts_of_one_s_own_are_trained_and_named(mine):
    block, _ = COMMANDS.findall(DOC)
    names = []
    for command in block.splitlines():
        _, _, _, *words = command.split()
        status, said = told(mine, *words, "report=false", "steps=4")
        assert status == 0, said
        names += re.findall(r"succeeded: (\S+) seed 0", said)
    assert names == ["allreduce", "rounded_1_no_ef", "topk_halving"]


def test_parts_of_one_s_own_keep_the_laws_or_are_told_which_not(mine):
    _, command = COMMANDS.findall(DOC)
    _, _, module, flag, *words = command.split()
    kept, broken, refused = re.findall(r"^```text\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL)
    assert told(mine, flag, *words, module=module) == (0, kept)
    rounded = (mine / "mine.py").read_text().replace("has_level = False", "has_level = True")
    (mine / "mine.py").write_text(rounded)
    status, said = told(mine, flag, "--config-dir=conf", "compressor=rounded", module=module)
    assert status == 1 and broken in said and said.count("does not hold") == 1
    (mine / "mine.py").write_text(rounded.replace("Reduced(mean, ", "Reduced(mean[:7], "))
    assert told(mine, "--config-dir=conf", *OWN, "compressor=rounded") == (1, refused)


def test_a_law_is_tried_of_a_part_that_is_there(mine):
    for words, said in {
        "": "name a part by compressor=CHOICE, controller=CHOICE, profile=CHOICE, activations",
        "compressor=nosuch": "compressor has no choice 'nosuch'",
        "compressor=topk,dense": "compressor=topk,dense: this command is of one run",
        "--config-dir=nowhere compressor=dense": "--config-dir must be a folder, got nowhere",
    }.items():
        status, line = told(mine, "--contract", *words.split(), module="harness.doctor")
        assert status == 1 and line.startswith(f"harness doctor: {said}"), line


OWN = ("model=net", "dataset=stripes", "network=simulated", "emulation.compute=measured")
BAD = {
    "+model.hiden=3": "model: mine.Net takes no 'hiden'; it takes hidden, num_classes",
    "model._target_=mine.Nett": "model._target_ must name a class: mine.Nett: there is no 'Nett'",
    "model._target_=gone.Net": "model._target_ must name a class: gone.Net: No module named 'gone'",
    "model._target_=os.getcwd ~model.hidden": "model._target_ must be a class with build, or",
    "dataset=digits dataset.size=16": "model: Net does not go with data set digits: ",
    "dataset.classes=3": "dataset: a sample of mine.Stripes must be a float32 tensor and a class",
    "emulation.compute=paced": "emulation.compute must be measured for model Net",
    "+dataset.train_arguments.length=0": "dataset: mine.Stripes has no sample for",
}


@pytest.fixture
def here(mine, monkeypatch):
    """In that folder, as the working directory of this process; forgotten afterwards."""
    monkeypatch.chdir(mine)
    monkeypatch.syspath_prepend(mine)
    monkeypatch.setenv(OWN_CHOICES, "")
    yield mine
    sys.modules.pop("mine", None)
    search_path_changed()


def search_path_changed() -> None:
    """What was found of choices is looked for again."""
    parts.choices.cache_clear()
    parts._files.cache_clear()
    parts.presets.cache_clear()


@pytest.mark.parametrize("bad", BAD)
def test_what_does_not_fit_is_said_before_anything_starts(here, bad):
    search_path_changed()
    said = refusal(here / "results", "--config-dir=conf", *OWN, *bad.split())
    assert BAD[bad] in said and "\n" not in said
    assert [path for name in STARTED for path in here.rglob(name)] == []


def test_a_folder_of_choices_has_none_of_another_s_name(here):
    (here / "conf/profile/static.yaml").write_text("_target_: mine.Sunset\n")
    said = refusal(here / "results", "--config-dir", "conf")
    name = "conf/profile/static.yaml has the name of a choice; rename it"
    assert said == f"harness: --config-dir: {name}"
    said = refusal(here / "results", "--config-dir", "nowhere")
    assert said == "harness: --config-dir must be a folder, got nowhere"
