"""Who imports whom, and which outside world has which single owner."""

import ast
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"compressors", "controllers", "profiles", "harness", "papers", "gradnet"}
MAY_IMPORT = {
    "compressors": set(),
    "controllers": set(),
    "profiles": set(),
    "harness": {"compressors", "controllers", "profiles"},  # studies only as it finds them
    "papers": {"harness"},
    "gradnet": {"controllers", "harness"},
}
OWNERS = {
    "pyroute2": {"harness/emulation"},
    "matplotlib": {"harness/reporting/figures"},
    "torch.utils.tensorboard": {"harness/trackers/tensorboard.py"},
    "wandb": {"harness/trackers/wandb.py"},
    "mlflow": {"harness/trackers/mlflow.py"},
    "torch.distributed": {
        "harness/engine/exchange/backends/",  # collectives
        "harness/engine/training/worker.py",  # start-up and leaving
        "harness/engine/training/replica.py",  # DDP, evaluation
        "harness/runner/launch.py",  # agents
        "harness/runner/torch_network.py",  # by which they meet
        "harness/engine/pipeline/channel.py",  # from stage to stage
        "harness/engine/pipeline/mesh.py",  # groups
        "harness/engine/pipeline/build.py",  # which groups
        "harness/engine/parameter_server/connection.py",  # between a server and a trainer
        "harness/calibrate/",  # start-up, barriers before what is timed
    },
}
ROOMS = {  # of harness/, below the commands: what each may import of the others
    "clock": "",
    "studies": "",
    "workloads": "",
    "records": "",
    "config": "records studies workloads",
    "engine": "clock config records workloads",
    "emulation": "config records",
    "trackers": "config records",
    "virtual": "clock config engine locks records workloads",
    "reporting": "config records studies workloads",
    "locks": "config records",
    "runner": "clock config emulation engine locks records virtual workloads",
    "constraints": "config emulation engine records workloads",
    "contract": "config engine",
    "validation": "config constraints contract records",
}


STUDIES = sorted(path.parent.name for path in (ROOT / "papers").glob("*/__init__.py"))
NAMES = "dc2|netsense|dct|covap|acp[_-]?sgd"
NAMED = re.compile(rf"(?<![a-z])({NAMES})", re.IGNORECASE)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def sources(package: str) -> list[Path]:
    found = list((ROOT / package).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_imports_only_what_it_may(package):
    for path in sources(package):
        tops = {name.split(".")[0] for name in imports(path)}
        assert tops & OURS <= MAY_IMPORT[package] | {package}, path


@pytest.mark.parametrize("package", ["controllers", "profiles"])
def test_controllers_and_profiles_need_only_the_standard_library(package):
    import sys

    for path in sources(package):
        for name in imports(path):
            top = name.split(".")[0]
            assert top == package or top in sys.stdlib_module_names, f"{path} imports {name}"


@pytest.mark.parametrize("library", OWNERS)
def test_every_outside_world_has_one_owner(library):
    for path in sources("harness") + sources("compressors"):
        if any(name == library or name.startswith(f"{library}.") for name in imports(path)):
            place = str(path.relative_to(ROOT))
            assert any(place.startswith(owner) for owner in OWNERS[library]), place


def test_a_study_imports_no_other():
    for study in STUDIES:
        for path in sources(f"papers/{study}"):
            others = [name for name in imports(path) if name.startswith("papers.")]
            assert all(name.split(".")[1] == study for name in others), path


def test_the_harness_names_no_paper():
    for path in sources("harness"):
        assert not NAMED.search(path.read_text()), path


class Arrow(NamedTuple):
    """One room of harness/ that imports another: a package there, or a module of no package."""

    importer: str
    imported: str


@cache
def arrows() -> dict[Arrow, list[str]]:
    """Import lines by arrow, wherever they stand: lazy ones and those for types alone too."""
    found: dict[Arrow, list[str]] = defaultdict(list)
    for path in sources("harness"):
        place = path.relative_to(ROOT)
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            for room in rooms_of(node, place):
                own = "cli" if place.name == "__main__.py" else place.with_suffix("").parts[1]
                if room != own:
                    line = ast.get_source_segment(text, node)
                    found[Arrow(own, room)].append(f"{place}:{node.lineno}: {line}")
    return dict(found)


def rooms_of(node: ast.AST, place: Path) -> set[str]:
    """Rooms that a statement of the module at `place` imports; none of any other."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        around = place.parts[: -node.level] if node.level else ()  # of a relative import
        module = ".".join([*around, *filter(None, [node.module])])
        names = [f"{module}.{alias.name}" for alias in node.names]
    else:
        return set()
    return {name.split(".")[1] for name in names if name.startswith("harness.")}


def files_imported(module: str) -> set[str]:
    """Modules of `files()` that `module` imports, wherever in it and for whatever use."""
    found = set()
    for node in ast.walk(ast.parse(files()[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in files() else node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & set(files())


@cache
def files() -> dict[str, Path]:
    """Files of harness/ by their module's name."""
    named = {path.relative_to(ROOT).with_suffix("").parts: path for path in sources("harness")}
    return {".".join(parts).removesuffix(".__init__"): path for parts, path in named.items()}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Some way from a room back to itself, each importing the next; empty where there is none."""
    for start in sorted(graph):
        ways = [[start]]
        seen = set[str]()
        while ways:
            way = ways.pop(0)
            for room in sorted(graph.get(way[-1], ())):
                if room == start:
                    return [*way, start]
                if room not in seen:
                    seen.add(room)
                    ways.append([*way, room])
    return []


def test_no_rooms_of_the_harness_import_each_other_in_a_circle():
    graph = defaultdict(set)
    for importer, imported in arrows():
        graph[importer].add(imported)
    found = cycle(dict(graph))
    lines = [line for pair in pairwise(found) for line in arrows()[Arrow(*pair)]]
    assert not found, "\n".join([" -> ".join(found), *lines])


def test_no_files_of_the_harness_import_each_other_in_a_circle():
    found = cycle({module: files_imported(module) for module in files()})
    assert not found, " -> ".join(found)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_those_it_may(room):
    there = {path.relative_to(ROOT).with_suffix("").parts[1] for path in sources("harness")}
    assert {room, *ROOMS[room].split()} <= there
    wrong = [
        line
        for (importer, imported), lines in arrows().items()
        if importer == room and imported not in ROOMS[room].split()
        for line in lines
    ]
    assert not wrong, "\n".join(wrong)


def test_a_circle_is_found_through_imports_that_are_lazy_for_types_or_relative():
    lazy = "def f():\n    from harness.virtual.run import simulate"
    for_types = "if TYPE_CHECKING:\n    import harness.virtual.run"
    relative = "from ..virtual import run"
    for source in (lazy, for_types, relative, "from harness import virtual"):
        found = [
            rooms_of(node, Path("harness/engine/x.py")) for node in ast.walk(ast.parse(source))
        ]
        assert set().union(*found) == {"virtual"}, source
    assert cycle({"a": {"b"}, "b": {"c", "d"}, "d": {"b"}}) == ["b", "d", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []
