"""Files, folders and commands that the docs and the Makefile name are there."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import harness

ROOT = Path(__file__).resolve().parents[1]
DOCS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "papers").glob("*.md")]
TOPS = "compressors|conf|controllers|docs|benchmarks|harness|papers|profiles|scripts|tests"
FILE = re.compile(rf"\b(?:{TOPS})/[\w/]+\.(?:py|md|yaml)\b")
EXAMPLE = re.compile(
    r"/(x|NAME|cyclic|valley|net|stripes|rounded|halving|sunset|blocks)\b"
)  # that a reader is to make
MODULE = re.compile(r"python -m (harness[\w.]*)")
WRITTEN = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FAULTS = "pytest.mark.faults"


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.stem)
def test_a_doc_names_only_files_and_commands_that_are_there(doc: Path) -> None:
    text = doc.read_text()
    files = {name for name in FILE.findall(text) if not EXAMPLE.search(name)}
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []
    modules = {name.rstrip(".").replace(".", "/") for name in MODULE.findall(text)}
    places = [(ROOT / f"{name}.py", ROOT / name / "__main__.py") for name in sorted(modules)]
    assert [either for either in places if not any(each.is_file() for each in either)] == []


def test_the_readme_is_a_screen_and_a_half() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120 and len(text.split()) <= 1000


def test_the_architecture_names_the_folders_that_are_there() -> None:
    _, _, text = (ROOT / "docs/architecture.md").read_text().partition("## The folders")
    named = set(re.findall(r"\b([a-z_]+)/", text.partition("## ")[0]))
    packages = {path.parent.name for path in (ROOT / "harness").glob("*/__init__.py")}
    engine = {path.parent.name for path in (ROOT / "harness/engine").glob("*/__init__.py")}
    tops = {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert packages | engine <= named <= packages | engine | tops


def test_make_faults_runs_what_has_a_long_form() -> None:
    told = subprocess.run(["make", "-n", "faults"], cwd=ROOT, capture_output=True, text=True)
    named = set(re.findall(r"tests/\S+\.py", told.stdout))
    assert named and [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    long = {path for path in (ROOT / "tests").rglob("test_*.py") if FAULTS in path.read_text()}
    assert {str(path.relative_to(ROOT)) for path in long - {Path(__file__)}} <= named


def test_one_version_is_told_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    [latest, *_] = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited == latest == harness.__version__


def test_the_tutorials_cost_the_lines_and_commands_that_the_first_page_says() -> None:
    """Of one's own script only the lines that are not plain torch count."""
    row = re.compile(r"\| (\d+) lines, (\d+) commands \| \[.*\]\((tutorial_\w+)\.md\)")
    rows = row.findall((ROOT / "docs/index.md").read_text())
    assert len(rows) == 3
    for lines, commands, tutorial in rows:
        text = (ROOT / f"docs/{tutorial}.md").read_text()
        written = [line for _, file in WRITTEN.findall(text) for line in file.split("\n") if line]
        if tutorial == "tutorial_script":
            written = [line for line in written if re.search(r"gradnet|handle\.close", line)]
        assert len(written) == int(lines), tutorial
        assert len("".join(COMMANDS.findall(text)).splitlines()) == int(commands), tutorial
