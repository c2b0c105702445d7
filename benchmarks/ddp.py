"""Dense by `gradnet.attach` against plain DDP on the same shaped link; target >= 0.98.

Both train the same model; iterations alternate between them, and so does which of the two is first,
so that drifting machines, and what one leaves behind for the next, hit both alike.

    python benchmarks/ddp.py [--nodes 2] [--mbit 200] [--steps 20]
"""

import argparse
import statistics
import time

import torch
import torch._dynamo  # noqa: F401  DDP imports it; here once, before the fork
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradnet
from harness.calibrate.ranks import enclosed, on_ranks

WIDTH, LAYERS, BATCH = 725, 6, 256  # 12.6 MB of gradients
BUCKET_MB = 2.0
UNSETTLED = 3  # DDP lays out its buckets anew, connections open


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def seconds(steps: int) -> tuple[list[float], list[float]]:
    """Seconds of each step on this rank: plain DDP's, and the harness's."""
    plain = DistributedDataParallel(_model(), bucket_cap_mb=BUCKET_MB)
    ours = DistributedDataParallel(_model(), bucket_cap_mb=BUCKET_MB)
    handle = gradnet.attach(ours, method="allreduce")
    taken: tuple[list[float], list[float]] = ([], [])
    inputs = torch.randn(BATCH, WIDTH)
    arms = list(enumerate((plain, ours)))
    for _ in range(steps + UNSETTLED):
        arms.reverse()
        for arm, ddp in arms:
            dist.barrier()
            begin = time.monotonic()
            ddp(inputs).square().mean().backward()
            if arm == 1:
                assert handle.seen is not None  # which ends the exchange, as an optimizer would
            taken[arm].append(time.monotonic() - begin)
            ddp.zero_grad()
    handle.close()
    return taken[0][UNSETTLED:], taken[1][UNSETTLED:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--mbit", type=float, default=200)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    by_rank = on_ranks(arguments.nodes, arguments.mbit, seconds, arguments.steps)
    plain, ours = (
        [max(steps) for steps in zip(*(rank[arm] for rank in by_rank), strict=True)]
        for arm in (0, 1)
    )
    ratio = statistics.median(plain) / statistics.median(ours)
    print(
        f"{arguments.nodes} nodes, {arguments.mbit:.0f} Mbit/s: plain DDP "
        f"{1e3 * statistics.median(plain):.1f} ms, harness {1e3 * statistics.median(ours):.1f} ms "
        f"a step; throughput ratio {ratio:.3f} (target >= 0.98)"
    )


if __name__ == "__main__":
    enclosed()
    main()
