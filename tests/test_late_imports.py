"""Answers that need no training import neither torch nor a library of figures."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "torchvision", "sklearn", "pandas", "matplotlib", "scipy", "numba")
PROBE = f"""
import atexit, runpy, sys
atexit.register(lambda: print("HEAVY", *(name for name in {HEAVY} if name in sys.modules)))
runpy.run_module("harness", run_name="__main__", alter_sys=True)
"""
ANSWERS = {  # status by command line
    "--help": 0, "--help compressor": 0, "--help optimizer": 0, "--version": 0, "--cfg job": 0,
    "--help nosuch": 1, "nosuch=3": 1, "workers=0": 1, "compressor=nosuch": 1, "topk": 1,
    "optimizer.lr=-1": 1, "optimizer.lrate=1": 1, "compressor=topk compressor.density=0.1": 1,
    "profile.rate_mbit=-1": 1, "controller.density=2": 1, "overlap=never": 1, "--nosuch": 1,
    "+nosuch=1": 1, "-m seed=0,1 batch_size=0": 1, "+experiment=nosuch": 1,
    "emulation.dilation=0": 1,
}  # fmt: skip


@pytest.mark.parametrize("line", ANSWERS)
def test_help_and_refusals_import_no_torch(line: str) -> None:
    command = [sys.executable, "-c", PROBE, *line.split()]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == ANSWERS[line], answer.stderr
    assert answer.stdout.splitlines()[-1] == "HEAVY", line


def test_the_probe_sees_torch_where_parts_with_tensors_are_built() -> None:
    command = [sys.executable, "-c", PROBE, "resume_from=nosuch", "steps=1"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 1 and "torch" in answer.stdout.splitlines()[-1].split()
