"""An algorithm file reads like its paper and can be taken elsewhere: what it may use."""

import ast
import importlib
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from compressors.base import Compressor
from compressors.buffers import Buffers
from controllers.base import Controller

ROOT = Path(__file__).resolve().parents[2]
BUILT_ON = {"dgc": {"compressors.sampled_topk"}}  # a parameter is another algorithm
GIVEN = {"grad", "n", "device", "split"}  # of buffers, to an algorithm
INTERNALS = {name for name in {*vars(Buffers), *vars(Buffers(torch.zeros(1)))} if name[:2] != "__"}
TRICKS = {"added", "clear", "known", "is_zero"}  # arguments of passes over memory


def compressors_in(module: str) -> list[Any]:
    found = vars(importlib.import_module(f"compressors.{module}")).values()
    classes = [each for each in found if isinstance(each, type) and Compressor in each.__mro__]
    return [each for each in classes if each.__module__ == f"compressors.{module}"]


MODULES = sorted(path.stem for path in (ROOT / "compressors").glob("[a-z]*.py"))
ALGORITHMS = [name for name in MODULES if name != "base" and compressors_in(name)]
HELPERS = {f"compressors.{name}" for name in MODULES if name not in ALGORITHMS}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def nodes(module: str) -> list[ast.AST]:
    return list(ast.walk(tree(ROOT / "compressors" / f"{module}.py")))


def test_every_choice_of_a_compressor_is_an_algorithm_file():
    chosen = [path.read_text() for path in (ROOT / "conf/compressor").glob("*.yaml")]
    targets = {text.split("_target_: compressors.")[1].split(".")[0] for text in chosen}
    assert targets == set(ALGORITHMS)


@pytest.mark.parametrize("module", ALGORITHMS)
def test_it_imports_only_torch_the_standard_library_and_helpers(module):
    for node in nodes(module):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.partition(".")[0] == "compressors":
                assert name in HELPERS | BUILT_ON.get(module, set()), name
            else:
                top = name.partition(".")[0]
                assert top == "torch" or top in sys.stdlib_module_names, name


@pytest.mark.parametrize("module", ALGORITHMS)
def test_it_leaves_the_memory_to_the_buffers(module):
    """It reads their sum, takes steps on them and splits them, and knows no more of them."""
    for node in nodes(module):
        if isinstance(node, ast.Attribute) and node.attr in INTERNALS - GIVEN:
            assert isinstance(node.value, ast.Name) and node.value.id == "bucket", node.attr
        if isinstance(node, ast.Attribute):
            assert node.attr != "data_ptr"
        if isinstance(node, ast.keyword):
            assert node.arg not in TRICKS


@pytest.mark.parametrize("module", ALGORITHMS)
def test_what_a_class_says_of_itself_is_declared_once(module):
    for kind in compressors_in(module):
        own = {name for name in vars(kind) if not name.startswith("_")}
        told = own - {field.name for field in fields(kind)} - {"reduce"}
        flags = {name for name in told if not callable(getattr(kind, name))}
        assert flags <= set(Compressor.__annotations__)


def test_nobody_asks_whether_a_compressor_or_a_controller_says_something():
    flags = {*Compressor.__annotations__, *Controller.__annotations__, "elements"}
    for package in ("compressors", "harness", "papers", "benchmarks"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(tree(path)):
                if not isinstance(node, ast.Call) or len(node.args) < 2:
                    continue
                called, (whom, what, *_) = ast.unparse(node.func), map(ast.unparse, node.args)
                asks = called in ("getattr", "hasattr") and what.strip("'") in flags
                known = whom.rpartition(".")[2] == "exchange"
                assert not asks or known, f"{path}: {ast.unparse(node)}"
