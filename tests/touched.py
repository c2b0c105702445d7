"""Test files that a change touches: `python -m tests.touched [BASE]` prints them.

A change is what differs from BASE (default: where this branch left its upstream, or the last
commit), committed or not. A test file is touched if it changed, or if it imports, over any number
of modules, one that did. A changed yaml touches what composes: who imports harness.config.settings.
Who names a folder of conf/, as laws for every compressor do, imports what its yaml builds.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gradnet", "compressors", "controllers", "profiles", "harness", "papers", "tests")
COMPOSES = "harness/config/settings.py"  # stands for what is in a conf/
EVERYTHING = ("pyproject.toml", "constraints.txt", "tests/conftest.py")
ON_GPU = "test_on_gpu.py"  # files of this name need a GPU


def changed(base: str, root: Path = ROOT) -> set[str]:
    """Paths below `root` that differ from the commit `base`, new ones included."""
    tracked = _git(root, "diff", "--name-only", base)
    return {*tracked, *_git(root, "ls-files", "--others", "--exclude-standard")}


def base_of(root: Path = ROOT) -> str:
    """Where the branch left its upstream; without one, or on it, the commit before the last."""
    for upstream in ("@{upstream}", "origin/HEAD"):
        if found := _git(root, "merge-base", "HEAD", upstream, may_fail=True):
            if found != _git(root, "rev-parse", "HEAD"):
                return found[0]
    return "HEAD~1"


def importers(root: Path = ROOT) -> dict[str, set[str]]:
    """The files that import each file, by path below `root`; a lazy import counts."""
    files = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    known = {_module(path.relative_to(root)): str(path.relative_to(root)) for path in files}
    found: dict[str, set[str]] = {path: set() for path in known.values()}
    for path in files:
        tree = ast.parse(path.read_text())
        for name in {*_imported(tree), *_built(tree, root)}:
            if name in known:
                found[known[name]].add(str(path.relative_to(root)))
    return found


def touched(paths: Iterable[str], known: Mapping[str, set[str]]) -> list[str]:
    """The test files that a change of `paths` touches, by the arrows `known` of importers()."""
    paths = set(paths)
    if paths & set(EVERYTHING):
        return sorted(filter(_is_test, known))
    if any(path.startswith("conf/") or "/conf/" in path for path in paths):
        paths.add(COMPOSES)
    reached, waiting = set(), [path for path in paths if path in known]
    while waiting:
        if (path := waiting.pop()) not in reached:
            reached.add(path)
            waiting += known[path]
    return sorted(filter(_is_test, reached))


def runnable(tests: list[str]) -> list[str]:
    """Leave out tests that need a GPU where there is none: pytest would run a file it is given."""
    others = [path for path in tests if Path(path).name != ON_GPU]
    if others == tests:
        return tests
    import torch  # takes seconds: only where it decides

    return tests if torch.cuda.is_available() else others


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.AST) -> Iterator[str]:
    """Names that may be modules: `from a import b` names a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _built(tree: ast.AST, root: Path) -> Iterator[str]:
    """Modules of classes named by path, or built by yaml of a folder ("conf/compressor")."""
    for node in ast.walk(tree):
        told = node.value if isinstance(node, ast.Constant) else None
        if isinstance(told, str):
            yield from re.findall(r"^([a-z_.0-9]+)\.[A-Z]\w*$", told, re.MULTILINE)
        if isinstance(told, str) and re.fullmatch("conf/[a-z_]+", told):
            for file in (root / told).rglob("*.yaml"):
                yield from re.findall(r"_target_: *([\w.]+)\.\w+", file.read_text())


def _git(root: Path, *words: str, may_fail: bool = False) -> list[str]:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    if done.returncode and not may_fail:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return [] if done.returncode else done.stdout.splitlines()


if __name__ == "__main__":
    base = sys.argv[1] if len(sys.argv) > 1 else base_of()
    print("\n".join(runnable(touched(changed(base), importers()))))
