"""What torchrun runs for test_on_gpu: a model on the GPU by several methods. `... BACKEND`"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import gradnet
from tests.gradnet.test_attached import a_model, batches, trained

METHODS: dict[str, tuple[str, ...]] = {"topk": ("controller.density=0.1",), "powersgd": (),
                                       "qsgd": (), "ef_signsgd": (), "dc2_da2": ()}  # fmt: skip


def run(*overrides: str, method: str | None) -> Tensor:
    """Weights after some steps of `method`; of DDP alone where that is None."""
    model = DistributedDataParallel(a_model().cuda(), bucket_cap_mb=0.01)
    handle = method and gradnet.attach(model, *overrides, method=method)
    given = [(inputs.cuda(), labels.cuda()) for inputs, labels in batches(dist.get_rank())]
    found = trained(model, given)
    if handle:
        assert handle.seen.sent_bytes >= 0 and handle.seen.step == len(given) - 1
        handle.close()
    return found.cpu()


def main(backend: str) -> None:
    torch.cuda.set_device(0)
    dist.init_process_group(backend)
    assert torch.equal(run(method=None), run(method="allreduce"))
    for method, overrides in METHODS.items():
        mine = run(*overrides, method=method)
        assert mine.isfinite().all(), method
        everyone: list = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        assert all(torch.equal(mine, theirs) for theirs in everyone), method
        print(f"trained by {method}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
