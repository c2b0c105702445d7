"""Findings on compiled kernels, GPUs and torch's communication backends."""

from collections.abc import Iterator, Sequence

import torch

from compressors import kernels
from compressors.cast import Cast
from compressors.powersgd import PowerSGD
from compressors.qsgd import QSGD
from compressors.randomk import RandomK
from compressors.signsgd import SignSGD
from compressors.sparseloco import SparseLoCo
from compressors.topk import TopK
from harness.config.backends import BETWEEN_CPUS, BETWEEN_GPUS
from harness.contract.reductions import gradient, run
from harness.doctor.composition import Composition
from harness.doctor.findings import Finding, needed


def accelerators(asked: Sequence[Composition]) -> Iterator[Finding]:
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for CPUs only"
    yield Finding("torch", "ok", torch.__version__, built)
    gpus = torch.cuda.device_count()
    on_cuda = [run.gpus(run.workers) for run, _ in asked if run.device == "cuda"]
    shared = f"one for each worker, or for all with backend={BETWEEN_CPUS.name}"
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
    yield _backend(BETWEEN_CPUS.name, "CPUs", on_cpus)
    on_gpus = any(each.on_gpus for each in asked) or bool(on_cuda)
    yield _backend(BETWEEN_GPUS.name, "GPUs", on_gpus)


def compiled() -> Iterator[Finding]:
    """Yield one finding: whether compiled kernels give the same results as numpy.

    It compares exchanges of two workers. Kernels that are not compiled yet are not tried.
    """
    if kernels.to_compile():
        yield Finding("kernels", "ok", "not compiled yet: the first run takes half a minute more")
        return
    if kernels.compiled() is None:
        means, enable = "compression on CPUs is slower, with equal results", "pip install numba"
        yield Finding("kernels", "warn", kernels.path(), means, enable)
        return
    gradients = [gradient(9_999, rank) for rank in range(2)]
    differing = []
    for compressor in (TopK, RandomK, SignSGD, QSGD, Cast, PowerSGD, SparseLoCo):
        mean = run(compressor, gradients, 0.1)[0].reduced.mean
        with kernels.by_numpy():
            expected = run(compressor, gradients, 0.1)[0].reduced.mean
        if not torch.allclose(mean, expected, rtol=1e-4, atol=1e-4):
            differing.append(compressor.__name__)
    if differing:
        found = f"{kernels.path()}: {', '.join(differing)} differ from numpy"
        enable = f"export {kernels.CHOICE}=numpy"
        yield Finding("kernels", "missing", found, "results on CPUs are wrong", enable)
    else:
        yield Finding("kernels", "ok", f"{kernels.path()}, as numpy")


def _backend(name: str, on: str, asked: bool) -> Finding:
    purpose = f"collectives of workers on {on}"
    if torch.distributed.is_backend_available(name):
        return Finding(name, "ok", "in this torch", purpose)
    return Finding(name, needed(asked), "not in this torch", purpose, "install another torch")
