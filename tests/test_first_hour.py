"""The first hour: `make quickstart` ends with an answer beside other programs and broken parts.

Each test runs the real command, with two methods and two rates.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.cli import quickstart
from tests.emulation.inside import MAPPED
from tests.launching import ROOT, network_namespaces, processes, state, until

pytestmark = [pytest.mark.launch, pytest.mark.faults, pytest.mark.timeout(900)]

SMALL = (
    "from harness.cli import quickstart\n"
    "from harness.cli.main import main\n"
    "quickstart.METHODS, quickstart.RATES_MBIT = 'allreduce,powersgd', [8, 32]\n"
    "main('quickstart')\n"
)
FORBIDDEN = 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"'


def start(results: Path, *before: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", SMALL, f"results={results}"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def check_answer(output: str, results: Path) -> None:
    """Check that the answer, its figure and its page are there."""
    assert "accuracy 0.75, 4 workers, links of 32 Mbit/s" in output
    assert "first by rate (Mbit/s): PowerSGD from 8 to 32" in output
    for name in ("rates.svg", "index.html"):
        assert (results / "quickstart/report" / name).stat().st_size > 1000, name


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Context manager: `count` processes, each in a session of its own, that never sleep."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for loop in running:
            loop.kill()
            loop.wait()


@pytest.mark.parametrize("count", [2, 8])
def test_beside_endless_loops_it_ends_with_an_answer_and_a_graded_proof(
    count: int, tmp_path: Path
) -> None:
    with loops(count):
        output, errors = (process := start(tmp_path)).communicate(timeout=800)
    assert process.returncode == 0, errors
    check_answer(output, tmp_path)
    proof = output.partition("proof over packets, 32 Mbit/s")[2]
    for method in ("all-reduce", "PowerSGD"):
        [line] = [line for line in proof.splitlines() if line.startswith(f"  {method} ")]
        assert "ms a step, predicted" in line


def test_with_namespaces_forbidden_it_ends_with_an_answer(tmp_path: Path) -> None:
    process = start(tmp_path, "unshare", *MAPPED, "sh", "-c", FORBIDDEN, "sh")
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    check_answer(output, tmp_path)
    assert output.splitlines()[-1] == quickstart.NO_NAMESPACES


@pytest.mark.parametrize("part", ["answer", "proof"])
def test_ctrl_c_ends_it_with_130_and_leaves_nothing(part: str, tmp_path: Path) -> None:
    before = network_namespaces()
    process = start(tmp_path)
    began = tmp_path / "quickstart"
    if part == "proof":
        began /= "report/index.html"
    until(began.exists, part, 300)
    if part == "proof":
        until(lambda: processes(f"supervisor of {tmp_path}"), "a run over packets", 100)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 130 and "interrupted" in errors, errors
    if part == "proof":
        check_answer(output, tmp_path)
    until(lambda: network_namespaces() <= before, "no namespace left", 30)


def test_a_killed_rank_of_the_proof_costs_its_run_alone(tmp_path: Path) -> None:
    process = start(tmp_path)
    until((tmp_path / "quickstart/report/index.html").exists, "the answer", 300)
    ranks: Any = until(lambda: processes("worker rank 1"), "a rank over packets", 100)
    os.kill(ranks[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    check_answer(output, tmp_path)
    assert "proof: all-reduce: rank 1 was killed by SIGKILL" in output
    assert "PowerSGD" in output.partition("proof over packets, 32 Mbit/s")[2]
    states = [state(run.parent) for run in tmp_path.glob("quickstart/*/status.json")]
    assert states.count("failed") == 1
