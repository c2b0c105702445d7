"""Which GPU a rank takes: of those that its command sees, in order, on every machine of a run."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.config.backends import backend_for
from harness.config.run import Run
from harness.constraints import check
from harness.engine.training.worker import LocalRanks, _device
from harness.runner.first_process import RunFailed
from harness.runner.supervise import _require_same
from tests.test_settings import settings


def run_of(*overrides: str) -> Run:
    return settings("model=mlp", *overrides).run()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Torch counts the GPUs that CUDA_VISIBLE_DEVICES leaves, from 0; `taken` are ranks'."""
    found = SimpleNamespace(visible=4, taken=[])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found.visible)
    monkeypatch.setattr(torch.cuda, "set_device", found.taken.append)
    return found


def devices(run: Run, first: int, count: int) -> list[str]:
    local = LocalRanks(first, count)
    return [str(_device(run, first + each, local)) for each in range(count)]


@pytest.mark.parametrize("first", [0, 4, 8])
def test_ranks_of_any_machine_take_its_gpus_from_the_first_on(machine: Any, first: int) -> None:
    run = run_of("workers=12", "workers_per_node=4")
    assert devices(run, first, 4) == [f"cuda:{each}" for each in range(4)]
    assert [each.index for each in machine.taken] == [0, 1, 2, 3]
    assert backend_for(machine.taken[0].type, run.backend).name == "nccl"


def test_a_task_that_sees_one_gpu_takes_that_one(machine: Any) -> None:
    """Of `srun --gpus-per-task=1`: whichever of the node's it is, torch calls it the first."""
    machine.visible = 1
    assert devices(run_of("workers=2"), first=1, count=1) == ["cuda:0"]


def test_more_gpus_than_workers_leave_the_rest(machine: Any) -> None:
    assert devices(run_of("workers=2"), first=0, count=2) == ["cuda:0", "cuda:1"]


def test_over_gloo_workers_share_them_in_turn(machine: Any) -> None:
    machine.visible = 2
    run = run_of("workers=5", "backend=gloo", "device=cuda")
    assert devices(run, first=0, count=5) == [f"cuda:{each}" for each in (0, 1, 0, 1, 0)]
    assert backend_for(machine.taken[0].type, run.backend).name == "gloo"


def test_too_few_are_left_alone_or_refused(machine: Any) -> None:
    machine.visible = 3
    assert devices(run_of("workers=4"), first=0, count=4) == ["cpu"] * 4
    assert machine.taken == []
    with pytest.raises(ValueError, match="for 4 workers on 3 GPUs"):
        check(run_of("workers=4", "device=cuda"))


def test_machines_that_come_to_other_devices_are_named(machine: Any) -> None:
    chosen, other = settings("model=mlp", "workers=2"), {"device": "cpu"}
    network: Any = SimpleNamespace(local=[0], gather=lambda name, own: [own, own | other])
    with pytest.raises(RunFailed, match="^device is 'cuda' on machine 0 and 'cpu' on 1$"):
        _require_same(chosen, chosen.run(), network)
