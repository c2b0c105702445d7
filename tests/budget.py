"""The size of the project against limits that may only fall: `python -m tests.budget` prints them.

`make check` runs it, and `tests/test_budget.py` compares the same table.
"""

import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradnet

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ("compressors", "controllers", "profiles", "papers", "harness")
PARTS = ("activations", "compressor", "controller", "dataset", "model", "network", "parallel",
         "profile", "tracker")  # fmt: skip
NO_KEYS = {"_target_", "comparison", "costs", "defaults", "folder", "hydra", "name", "seeds",
           "times"}  # fmt: skip
ASSIGNED = re.compile(r"(?<![\w.])([a-z_][\w.]*(?:/[a-z_]+)?)=")


def tracked(*suffixes: str) -> list[Path]:
    """Return the files of the repository that end so, by path below its root."""
    listed = subprocess.check_output(("git", "-C", str(ROOT), "ls-files"), text=True).splitlines()
    return [Path(name) for name in listed if name.endswith(suffixes) and (ROOT / name).is_file()]


def lines(*folders: str) -> int:
    """Count the lines of all Python files in `folders`."""
    files = [path for path in tracked(".py") if path.parts[0] in folders]
    return sum(len((ROOT / path).read_text().splitlines()) for path in files)


def functions_of_a_step() -> int:
    """Count the functions of ours that one exchange enters: topk, one rank, one bucket."""
    entered: set[Any] = set()
    is_on = False

    def look(frame: FrameType, event: str, _: Any) -> None:
        if is_on and event == "call" and frame.f_code.co_filename.startswith(ours):
            entered.add(frame.f_code)

    ours = tuple(f"{ROOT / name}/" for name in (*SOURCE, "gradnet"))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(64, 64))
    threading.setprofile(look)  # type: ignore[arg-type]
    handle = gradnet.attach(model, "controller.density=0.1", method="topk")
    for step in range(4):
        is_on = step == 3
        sys.setprofile(look)
        model(torch.ones(8, 64)).sum().backward()
        sys.setprofile(None)
    is_on = False
    threading.setprofile(None)  # type: ignore[arg-type]
    handle.close()
    dist.destroy_process_group()
    return sum(not code.co_name.startswith("<") for code in entered)  # no comprehensions


def keys(node: dict[str, Any], before: str = "", depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield key and value of every setting; the mapping in a part is one value (`depth` 1)."""
    for name, value in node.items():
        if name not in NO_KEYS and isinstance(value, dict) and depth > 1:
            yield from keys(value, f"{before}{name}.", depth - 1)
        elif name not in NO_KEYS:
            yield f"{before}{name}", value


def keys_set_nowhere() -> list[str]:
    """List the keys of conf/ that no experiment, preset, study, doc or notebook sets.

    A key is set where `key=` is written, or where a yaml has a value other than the first one.
    """
    values: dict[str, list[Any]] = defaultdict(list)
    written, defined = set[str](), {key for key, _ in keys(_yaml(ROOT / "conf/config.yaml"))}
    for path in tracked(".yaml", ".md", ".ipynb", "Makefile"):
        text = (ROOT / path).read_text()
        if path.parts[0] not in ("tests", "CHANGELOG.md"):
            written.update(ASSIGNED.findall(text))
        if path.parent.name == "testbeds":
            testbed = _yaml(ROOT / path)
            for key in (*testbed.get("network", ()), *testbed.get("constants", ())):
                written.add(f"network.{key.split('.')[0]}")
        if path.suffix != ".yaml" or "conf" not in path.parts:
            continue
        group = path.parts[path.parts.index("conf") + 1]
        content = _yaml(ROOT / path)
        if group not in PARTS:
            found = keys(content)
        elif path.parent.name in (group, "base"):
            found = keys(content, f"{group}.", 1)
        else:
            continue
        for key, value in found:
            values[key].append(value)
            if path.parts[0] == "conf" and group in PARTS:
                defined.add(key)
    written |= {f"{key.split('.')[0]}.{key.split('.')[-1]}" for key in written if "." in key}
    written |= {key.replace("/", ".") for key in written}
    return sorted(
        key
        for key in defined - written
        if all(repr(value) == repr(values[key][0]) for value in values[key])
    )


def _yaml(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text()) or {}


MEASURES: dict[str, tuple[Callable[[], int], int, int]] = {  # measured by, limit, goal
    "source lines": (lambda: lines(*SOURCE), 69_300, 58_000),
    "test lines": (lambda: lines("tests"), 48_000, 40_000),
    "functions of an exchange step": (functions_of_a_step, 148, 80),
    "keys that nothing sets": (lambda: len(keys_set_nowhere()), 92, 100),
}


def main() -> int:
    """Print every measure with its limit and goal; return 1 if one is above its limit."""
    above = 0
    for name, (measured, limit, goal) in MEASURES.items():
        found = measured()
        above += found > limit
        print(f"{name:32}{found:8} of {limit} (goal {goal}){' TOO MANY' * (found > limit)}")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
