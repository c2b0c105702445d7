"""How much of an exchange backward hides on a GPU: a real network in DistributedDataParallel.

    python benchmarks/gpu_overlap.py [--backend nccl gloo] [--only topk ...]

One rank in a process group of its own, so that there is no wire: an exchange is compression, its
stream, the collective's kernels and, with gloo, the way by the host's memory. Steps without an
exchange (`no_sync`), with it after backward and beside it take turns; hidden is the share of what
the exchange adds after backward that it adds no more beside it. `exchange` is what it adds, over a
step without. Several ranks on one GPU would share its processors, and measure that.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import gradnet

WIDTH, LAYERS, BATCH = 1024, 24, 8192  # 25 M parameters, as ResNet-50 has
METHODS = ("allreduce", "topk", "qsgd", "ef_signsgd", "powersgd")
WARM, STEPS = 4, 9


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    return nn.Sequential(*layers).cuda()


def stepper(inputs: Tensor, method: str | None, overlap: str) -> tuple[Callable[[], None], object]:
    """A step of forward and backward, without an exchange where `method` is None; the handle."""
    model = DistributedDataParallel(network())
    handle = method and gradnet.attach(model, method=method, overlap=overlap)

    def step() -> None:
        with nullcontext() if method else model.no_sync():
            model(inputs).square().mean().backward()
        if handle:
            assert handle.seen is not None

    return step, handle


def in_turn(steps: list[Callable[[], None]]) -> list[float]:
    """Median seconds of each, on the host's clock, until the device is done."""
    taken: list[list[float]] = [[] for _ in steps]
    for _ in range(WARM + STEPS):
        for own, step in zip(taken, steps, strict=True):
            torch.cuda.synchronize()
            began = time.perf_counter()
            step()
            torch.cuda.synchronize()
            own.append(time.perf_counter() - began)
    return [statistics.median(own[WARM:]) for own in taken]


def row(backend: str, method: str, inputs: Tensor) -> None:
    pairs = [
        stepper(inputs, None, ""),
        stepper(inputs, method, "after_backward"),
        stepper(inputs, method, "per_bucket"),
    ]
    alone_s, after_s, beside_s = in_turn([step for step, _ in pairs])
    added_s = after_s - alone_s
    hidden = 1 - (beside_s - alone_s) / added_s
    print(f"{backend:6} {method:14}{1e3 * alone_s:9.2f}{1e3 * after_s:9.2f}{1e3 * beside_s:9.2f}"
          f"{added_s / alone_s:10.2f}{hidden:8.0%}", flush=True)  # fmt: skip
    for _, handle in pairs:
        if handle:
            handle.close()  # type: ignore[attr-defined]


def measured(backend: str, methods: list[str]) -> None:
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group(backend, init_method=f"file://{file.name}", rank=0, world_size=1)
        inputs = torch.randn(BATCH, WIDTH, device="cuda")
        for method in methods:
            row(backend, method, inputs)
        dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", nargs="+", choices=("nccl", "gloo"), default=("nccl", "gloo"))
    parser.add_argument("--only", nargs="+", default=METHODS, metavar="METHOD")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs an NVIDIA GPU and torch with CUDA, and finds none", file=sys.stderr)
        return 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {os.cpu_count()} cores")
    print(f"{'ms of a step':21}{'alone':>9}{'after':>9}{'beside':>9}{'exchange':>10}{'hidden':>8}")
    for backend in arguments.backend:
        measured(backend, arguments.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
