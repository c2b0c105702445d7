"""Who imports whom, and which outside world has which single owner."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"compressors", "controllers", "profiles", "harness", "papers"}
MAY_IMPORT = {
    "compressors": set(),
    "controllers": set(),
    "profiles": set(),
    "harness": {"compressors", "controllers", "profiles"},  # studies only as it finds them
    "papers": {"harness"},
}
OWNERS = {
    "pyroute2": {"harness/emulation"},
    "matplotlib": {"harness/reporting/figures"},
    "torch.distributed": {
        "harness/engine/exchange/workers.py",  # collectives
        "harness/engine/training/worker.py",  # start-up and leaving
        "harness/engine/training/replica.py",  # DDP, evaluation
        "harness/runner/launch.py",  # agents
        "harness/runner/store.py",  # by which they meet
        "harness/engine/pipeline/channel.py",  # from stage to stage
        "harness/engine/pipeline/mesh.py",  # groups
        "harness/engine/pipeline/assembly.py",  # which groups
        "harness/engine/parameter_server/connection.py",  # between a server and a trainer
        "harness/calibrate/",  # start-up, barriers before what is timed
    },
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
