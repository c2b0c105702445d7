"""A step takes its memory from the steps before it, and asks the system for next to none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.records.environment import ALLOCATOR

ROOT = Path(__file__).parents[2]
ELEMENTS = 4_000_000  # a copy of the gradient is 16 MB, at density 0.01 the entries sent are 0.3 MB
MOST_BYTES = 500_000
WARM = 4  # steps before, in which memory is taken
MEASURE = f"""
import sys
sys.path.insert(0, "benchmarks")
import torch
from compression import names, step
from local import fresh_bytes, gradient

torch.set_num_threads(1)
grad = gradient({ELEMENTS})
for name in names():
    one = step(name, grad)
    for _ in range({WARM}):
        one.prepare()
        one.work()
    print(name, fresh_bytes(one.prepare, one.work))
"""


@pytest.fixture(scope="module")
def fresh_bytes() -> dict[str, int]:
    """Bytes by compressor of conf/compressor; in a process of its own, whose pages are counted."""
    done = subprocess.run([sys.executable, "-c", MEASURE], cwd=ROOT,
                          env={**os.environ, **ALLOCATOR}, capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: int(count) for name, count in map(str.split, done.stdout.splitlines())}


@pytest.mark.parametrize("path", sorted(ROOT.glob("conf/compressor/*.yaml")), ids=lambda p: p.stem)
def test_a_step_asks_for_next_to_no_memory(path: Path, fresh_bytes: dict[str, int]) -> None:
    assert fresh_bytes[path.stem] < MOST_BYTES
