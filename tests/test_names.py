"""A class of the harness has a name of its own, and a docstring can be read without its name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compressors", "controllers", "harness", "papers", "profiles")
LEANS = re.compile(r"(Likewise|Of|Those|Than|The same|What|Whether|Where|How|Which)\b")


def classes(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and `file:line` of every class below `folder`, nested ones too."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_no_class_name_stands_twice_in_the_harness():
    places = defaultdict(list)
    for name, place in classes(ROOT / "harness"):
        places[name].append(place)
    assert len(places) > 100  # the harness was found
    twice = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]
    assert not twice, "one name, several classes:\n" + "\n".join(sorted(twice))


def docstrings(folder: Path) -> Iterator[tuple[str, str]]:
    """Docstring and `file:line` of every class and function below `folder`."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if told := ast.get_docstring(node):
                    yield told, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_a_docstring_says_what_a_thing_is_or_does():
    found = [each for package in PACKAGES for each in docstrings(ROOT / package)]
    assert len(found) > 1000  # the packages were found
    leaning = [f"{place}: {told.splitlines()[0]}" for told, place in found if LEANS.match(told)]
    assert not leaning, "these go on from the name:\n" + "\n".join(leaning)
