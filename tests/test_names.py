"""A class has a name of its own: no name stands for two classes of the harness."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
