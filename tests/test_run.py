"""Settings stop at the edge: below it a run is a frozen, typed `Run`, not read by key."""

import ast
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from harness.config.run import Run
from harness.config.scales import composed

ROOT = Path(__file__).resolve().parents[1]
EDGE = (  # who composes configurations, or keeps one with what follows from it
    "harness/cli/", "harness/predict/", "harness/advise/", "harness/around/", "harness/reproduce/",
    "harness/calibrate/compression.py", "harness/doctor/composition.py", "harness/validation.py",
    "harness/config/label.py", "harness/config/parts.py", "harness/config/refused.py",
    "harness/config/scales.py", "harness/config/search_path.py", "harness/config/settings.py",
    "harness/config/fallback.py", "harness/config/sweep.py", "harness/config/typed.py",
    "harness/config/own.py", "harness/contract/", "harness/runner/run.py",
    "harness/runner/previous_result.py", "harness/runner/supervise.py",
    "harness/runner/fork_server.py", "harness/runner/first_process.py",
    "harness/runner/progress.py",
)  # fmt: skip
REFUSE = ("harness/doctor/data.py",)  # by the error of the edge
RESULTS = ("harness/reporting/", "harness/trackers/")  # read
CONFIGURATIONS = {"settings", "self.settings", "config", "self.config", "settings.config"}


def below_the_edge() -> Iterator[tuple[str, ast.AST]]:
    """Every node of every module that may not know a configuration."""
    for path in sorted((ROOT / "harness").rglob("*.py")):
        place = str(path.relative_to(ROOT))
        if not any(place.startswith(each) for each in EDGE + RESULTS):
            yield from ((place, node) for node in ast.walk(ast.parse(path.read_text())))


def is_read_by_key(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return False
    return isinstance(node.slice.value, str) and ast.unparse(node.value) in CONFIGURATIONS


def is_built_by_name(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func
    return bool(called) and called.attr == "build" and isinstance(node.args[0], ast.Constant)


def test_nothing_below_the_edge_reads_a_configuration_or_decides_by_a_class_path():
    found = [
        f"{place}:{node.lineno}"
        for place, node in below_the_edge()
        if is_read_by_key(node)
        or is_built_by_name(node)
        or (isinstance(node, ast.Constant) and node.value == "_target_")
    ]
    assert not found


def test_the_edge_is_there():
    assert [each for each in (*EDGE, *REFUSE, *RESULTS) if not (ROOT / each).exists()] == []


def test_only_the_edge_is_handed_settings():
    found = {
        place
        for place, node in below_the_edge()
        if isinstance(node, ast.ImportFrom) and node.module == "harness.config.settings"
        if place not in REFUSE or any(each.name != "BadSetting" for each in node.names)
    }
    assert not found


def test_a_run_is_frozen_and_so_are_its_sections():
    run = composed([])[0].run()
    for part in (run, run.target, run.optimizer, run.emulation, run.timeouts, run.profile):
        with pytest.raises(FrozenInstanceError):
            setattr(part, fields(part)[0].name, None)
    assert replace(run, workers=8).workers == 8 and run.workers == 4


def test_every_field_of_a_run_has_a_type():
    def is_told(kind: Any) -> bool:
        return kind is not Any and all(map(is_told, get_args(kind)))

    sections = [each for each in get_type_hints(Run).values() if is_dataclass(each)]
    for kind in (Run, *sections):
        untold = [name for name, each in get_type_hints(kind).items() if not is_told(each)]
        assert untold == (["deciding"] if kind is Run else [])


def test_every_rank_has_a_compressor_a_controller_and_a_scheme_of_its_own():
    run = composed(["method=dc2_da2", "compressor=topk"])[0].run()
    for make in (run.compressor, run.controller, run.activations):
        assert make() is not make() and type(make()) is type(make())


def test_a_whole_number_is_a_float_where_one_is_declared():
    settings = composed([f"optimizer.lr={2**64}", "optimizer.clip_norm=1", "steps=7"])[0]
    run = settings.run()
    assert type(run.optimizer.lr) is float and type(run.optimizer.clip_norm) is float
    assert type(run.steps) is int
