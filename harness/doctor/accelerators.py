"""Findings on GPUs and torch's communication backends."""

from collections.abc import Iterator, Sequence

import torch

from harness.doctor.composition import Composition
from harness.doctor.findings import Finding, needed


def accelerators(asked: Sequence[Composition]) -> Iterator[Finding]:
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for CPUs only"
    yield Finding("torch", "ok", torch.__version__, built)
    gpus = torch.cuda.device_count()
    on_cuda = [run.gpus(run.workers) for run, _ in asked if run.device == "cuda"]
    shared = "one for each worker, or for all with backend=gloo"
    enable = "an NVIDIA GPU for each worker and its driver, as nvidia-smi tells; or device=cpu"
    if gpus < max(on_cuda, default=0):
        means = f"device=cuda needs {max(on_cuda)}: {shared}"
        yield Finding("GPUs", "missing", str(gpus), means, enable)
    elif gpus == 0:
        yield Finding("GPUs", "warn", "none", "workers compute on the CPU")
    else:
        names = ", ".join(sorted({torch.cuda.get_device_name(k) for k in range(gpus)}))
        used = "used" if any(each.on_gpus for each in asked) else "not used by these runs"
        yield Finding("GPUs", "ok", f"{gpus} x {names}", f"{used}; {shared}")
    on_cpus = not all(each.on_gpus for each in asked)
    yield _backend("gloo", torch.distributed.is_gloo_available(), "CPUs", on_cpus)
    on_gpus = any(each.on_gpus for each in asked) or bool(on_cuda)
    yield _backend("nccl", torch.distributed.is_nccl_available(), "GPUs", on_gpus)


def _backend(name: str, there: bool, on: str, asked: bool) -> Finding:
    purpose = f"collectives of workers on {on}"
    if there:
        return Finding(name, "ok", "in this torch", purpose)
    return Finding(name, needed(asked), "not in this torch", purpose, "install another torch")
