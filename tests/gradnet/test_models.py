"""Which models can be attached, and what an attached model is to the rest of its script."""

import copy
import io
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import gradnet
from harness.config.search_path import choices
from harness.config.typed import BadSetting
from tests.ranks import run_ranks


class Empty(nn.Module):
    """A matrix without rows beside one that has some, as models with optional parts have."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = nn.Parameter(torch.zeros(0, 8))
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.empty.sum()


def refusals() -> list[tuple[str, int]]:
    """Each message, and how many hooks and threads the refusal left."""
    embedding = nn.Sequential(nn.EmbeddingBag(60, 8, sparse=True, mode="sum"), nn.Linear(8, 4))
    alone = nn.Embedding(60, 8, sparse=True)
    double = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2).double())
    models = [DistributedDataParallel(module) for module in (embedding, alone, double)]
    hooked = DistributedDataParallel(nn.Linear(8, 4))
    hooked.register_comm_hook(None, fp16_compress_hook)
    builtin = DistributedDataParallel(nn.Linear(8, 4))
    builtin._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    frozen = DistributedDataParallel(nn.Linear(8, 4)).requires_grad_(False)
    told = []
    for model in (*models, hooked, builtin, frozen):
        threads = threading.active_count()
        with pytest.raises(BadSetting) as refused:
            gradnet.attach(model, method="topk")
        left = len(model._forward_pre_hooks) + len(model._forward_hooks)
        told.append((str(refused.value), left + threading.active_count() - threads))
    return told


def test_a_model_that_cannot_be_exchanged_is_refused_by_its_parameter() -> None:
    starts = [
        "0.weight must have a dense gradient: write sparse=False, got sparse=True",
        "weight must have a dense gradient: write sparse=False, got sparse=True",
        "1.weight must be torch.float32, got torch.float64",
        "model's communication hook must be none: DDP has one in its life",
        "model's communication hook must be none: DDP has one in its life",
        "model's parameters that require a gradient must be 1 or more, got 0",
    ]
    [told, _] = run_ranks(2, refusals)
    for (message, left), start in zip(told, starts, strict=True):
        assert message.startswith(start), message
        assert "\n" not in message
        assert left == 0


def with_empty_matrix() -> None:
    for compressor in choices("compressor"):
        kept_inside = compressor in ("dgc", "demo")
        model = DistributedDataParallel(Empty())
        handle = gradnet.attach(model, compressor=compressor, error_feedback=not kept_inside)
        for _ in range(2):
            model(torch.ones(2, 8)).sum().backward()
        handle.close()


def test_a_parameter_without_elements_trains_with_every_compressor() -> None:
    run_ranks(2, with_empty_matrix)


def copies() -> list[list[str]]:
    model = DistributedDataParallel(nn.Linear(10, 3))
    handle = gradnet.attach(model, method="topk")
    kept = io.BytesIO()
    torch.save(model, kept)
    made = [copy.deepcopy(model), AveragedModel(model).module]
    model(torch.ones(2, 10)).sum().backward()
    made += [copy.deepcopy(model)]
    kept.seek(0)
    made += [torch.load(kept, weights_only=False)]
    threads = threading.active_count()
    left = []
    for each in made:
        each(torch.ones(2, 10)).sum().backward()  # as plain DDP
        assert type(each) is DistributedDataParallel
        hooks = [*each._forward_pre_hooks, *each._forward_hooks, *each._comm_hooks]
        left.append([str(hook) for hook in hooks] + [k for k in vars(each) if k == "__getstate__"])
    assert threading.active_count() == threads
    assert handle.seen.step == 0
    again = gradnet.attach(made[0], method="qsgd")
    again.close()
    handle.close()
    assert "__getstate__" not in vars(model)
    return left


def test_copies_of_an_attached_model_are_plain_ddp() -> None:
    for left in run_ranks(2, copies):
        assert left == [[]] * 4


APPLICATION = """
import os
import hydra
import torch
import torch.distributed as dist
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.version import getbase
from omegaconf import OmegaConf
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import gradnet

def state():
    job = HydraConfig.get().job.name if HydraConfig.initialized() else None
    return job, GlobalHydra.instance().hydra, getbase()

def attach(method):
    model = DistributedDataParallel(nn.Linear(8, 4))
    before = state()
    handle = gradnet.attach(model, method=method)
    try:
        gradnet.attach(model, method="none_such")
    except ValueError:
        pass
    model(torch.ones(2, 8)).sum().backward()
    assert handle.seen is not None
    handle.close()
    assert state() == before
    print("composes", hydra.compose("own", ["method=5"]).method)

@hydra.main(version_base=None, config_path=None, config_name="own")
def main(config):
    attach(config.method)
    print("directory", os.path.basename(HydraConfig.get().runtime.output_dir))

ConfigStore.instance().store("own", OmegaConf.create({"method": "topk"}))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
with hydra.initialize(config_path=None, version_base="1.2"):  # as in a notebook
    attach("qsgd")
main()
"""


def test_attach_works_inside_a_hydra_application(tmp_path: Path) -> None:
    """A key of the application may have the name of one of our groups: `method`."""
    (tmp_path / "application.py").write_text(APPLICATION)
    command = [sys.executable, "application.py", "method=powersgd", "hydra.run.dir=out/mine"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["composes 5", "composes 5", "directory mine"]
