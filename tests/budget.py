"""The size of the project against limits that may only fall: `python -m tests.budget` prints them.

`make check` runs it, and `tests/test_budget.py` compares the same table.
"""

import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradnet
from tests.test_arrows import imports

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
    entered, is_on = set[Any](), False
    ours = tuple(f"{ROOT / name}/" for name in (*SOURCE, "gradnet"))

    def look(frame: FrameType, event: str, _: Any) -> None:
        if is_on and event == "call" and frame.f_code.co_filename.startswith(ours):
            entered.add(frame.f_code)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(64, 64))
    threading.setprofile(look)
    handle = gradnet.attach(model, "controller.density=0.1", method="topk")
    for step in range(4):
        is_on = step == 3
        sys.setprofile(look)
        model(torch.ones(8, 64)).sum().backward()
        sys.setprofile(None)
    is_on = False
    threading.setprofile(None)
    handle.close()
    dist.destroy_process_group()
    return sum(not code.co_name.startswith("<") for code in entered)  # no comprehensions


def arrows() -> int:
    """Count pairs of packages, those of harness/ apart, of which one imports the other."""

    def room(module: str) -> tuple[str, ...]:
        return tuple(module.split(".")[: 1 + module.startswith("harness.")])

    files = [path for path in tracked(".py") if path.parts[0] in SOURCE]
    pairs = {(room(".".join(path.parts)), room(module)) for path in files
             for module in imports(ROOT / path) if module.split(".")[0] in SOURCE}  # fmt: skip
    return sum(one != other for one, other in pairs)


def keys_set_nowhere() -> list[str]:
    """List the keys of conf/ that no experiment, preset, study, doc or notebook sets.

    A key is set where `key=` is written, or where a yaml has a value other than the first one.
    """
    values, written, defined = defaultdict[str, list[Any]](list), set[str](), set[str]()

    def take(node: dict[str, Any], before: str, depth: int, defines: bool) -> None:
        for name in node.keys() - NO_KEYS:
            if isinstance(node[name], dict) and depth > 1:
                take(node[name], f"{before}{name}.", depth - 1, defines)
            else:
                values[before + name].append(node[name])
                defined.update([before + name] if defines else [])

    for path in tracked(".yaml", ".md", ".ipynb"):
        text, is_ours = (ROOT / path).read_text(), path.parts[0] == "conf"
        if path.parts[0] not in ("tests", "CHANGELOG.md"):
            written.update(ASSIGNED.findall(text))
        if path.parent.name == "testbeds":
            bed = yaml.safe_load(text)
            named = (*bed.get("network", ()), *bed.get("constants", ()))
            written |= {f"network.{key.split('.')[0]}" for key in named}
        elif path.suffix == ".yaml" and "conf" in path.parts:
            group = path.parts[path.parts.index("conf") + 1]
            if path.parent.name in (group, "base") and group in PARTS:
                take(yaml.safe_load(text) or {}, f"{group}.", 1, is_ours)
            elif group not in PARTS:
                take(yaml.safe_load(text) or {}, "", 3, path.name == "config.yaml")
    written |= {f"{key.split('.')[0]}.{key.split('.')[-1]}" for key in written if "." in key}
    written |= {key.replace("/", ".") for key in written}
    same = {key for key, each in values.items() if len(set(map(repr, each))) == 1}
    return sorted(defined & same - written)


MEASURES: dict[str, tuple[Callable[[], int], int, int]] = {  # measured by, limit, goal
    "source lines": (lambda: lines(*SOURCE), 67_900, 58_000),
    "test lines": (lambda: lines("tests"), 47_500, 40_000),
    "functions of an exchange step": (functions_of_a_step, 112, 80),
    "arrows between packages": (arrows, 165, 140),
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
