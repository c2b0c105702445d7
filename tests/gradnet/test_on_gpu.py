"""`gradnet.attach` and whole runs on a GPU; collected where there is one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gradnet.train_on_gpu import METHODS

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
TINY = ("workload=digits_convnet", "steps=6", "eval_every=3", "report=false", "workers=2")


@pytest.mark.launch
@pytest.mark.parametrize(("backend", "ranks"), [("nccl", 1), ("gloo", 2)])
def test_an_attached_model_trains(backend: str, ranks: int) -> None:
    """NCCL cannot have two ranks on one GPU."""
    command = [*TORCHRUN, f"--nproc-per-node={ranks}", "-m", "tests.gradnet.train_on_gpu", backend]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"trained by {method}" in done.stdout for method in METHODS)


@pytest.mark.launch
@pytest.mark.parametrize(
    "where", [("network=simulated",), pytest.param(("backend=gloo",), marks=pytest.mark.network)]
)
@pytest.mark.parametrize("method", ["allreduce", "dc2_da2", "powersgd", "qsgd"])
def test_a_run_trains(where: tuple[str, ...], method: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", *TINY, *where, "device=cuda", f"method={method}"]
    done = subprocess.run([*command, f"results={tmp_path}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [status] = tmp_path.rglob("status.json")
    assert json.loads(status.read_text())["state"] == "succeeded"
    assert json.loads((status.parent / "checkpoint/manifest.json").read_text())["device"] == "cuda"
