"""How much of an exchange backward hides, for every compressor; target >= 80 % each.

Without overlap an exchange is exposed from the end of backward to its own end. With it, backward
takes as long as that (a communication-to-computation ratio of 1) and hands over 32 layers one by
one; hidden is the share that is exposed no more, of which the last layer cannot be. Steps of both
kinds alternate. A compressor of several rounds, each of which needs the result of the one before,
overlaps like any other: its rounds take turns with those of the next bucket beside backward.

    python benchmarks/overlap.py [--nodes 2] [--mbit 200] [--steps 8] [--only topk]
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch
import torch._dynamo  # noqa: F401  optimizers import it; here once, before the fork
import torch.distributed as dist
from hydra.utils import instantiate
from omegaconf import OmegaConf

from compressors import kernels
from controllers.fixed import Fixed
from harness.calibrate.ranks import enclosed, group_of_all, on_ranks
from harness.clock import Clock
from harness.engine.exchange.bucket_lanes import Exchange
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import Reduction
from harness.engine.training.course import without_data
from harness.engine.training.gradients import Replayed
from harness.engine.training.pace import Paced
from harness.engine.training.step import StepExchange

WIDTH, LAYERS = 256, 32  # 8.4 MB of gradients
BUCKET_MB = 0.25  # one layer
DENSITIES = {"covap": 0.25}  # sends every fourth bucket; of ten it would leave three to an exchange
DENSITY = 0.1  # of the others
UNSETTLED = 3  # steps; the first compile kernels and open connections
TARGET = 0.8
CHOICES = Path(__file__).resolve().parents[1] / "conf" / "compressor"
GRADIENTS = {
    f"{layer}.{name}": torch.empty(shape, device="meta")
    for layer in range(LAYERS)
    for name, shape in (("weight", (WIDTH, WIDTH)), ("bias", (WIDTH,)))
}


class Taken(NamedTuple):
    """Seconds of one step."""

    exposed_s: float  # from the end of backward to that of the exchange
    comm_s: float
    compress_s: float


class Replay:
    """Steps of one compressor on noise, sent when an emulated backward would have it."""

    def __init__(self, name: str, group: dist.ProcessGroup) -> None:
        part = OmegaConf.merge({"seed": 0, "part": OmegaConf.load(CHOICES / f"{name}.yaml")}).part
        compressor, workers, clock = instantiate(part), Workers(group), Clock()
        clock.start()
        own = "error_feedback" in compressor.replaces
        feedback = NoFeedback() if own or name == "dense" else Residual()
        controller = Fixed(DENSITIES.get(name, DENSITY))
        reduction = Reduction(compressor, controller, "local", feedback, workers)
        shares = {each: 1 / len(GRADIENTS) for each in GRADIENTS}
        self.exchange = Exchange(reduction, workers, clock, {}, shares)
        given = without_data(1, steps=0), self.exchange, BUCKET_MB
        self._gradients = Replayed(GRADIENTS, *given, seed=dist.get_rank())
        self._step = 0

    def step(self, after_backward: bool, backward_s: float) -> Taken:
        dist.barrier()
        self.exchange.after_backward = after_backward
        one = StepExchange(self.exchange, self.exchange.clock)
        begin = self.exchange.clock.now()
        one.begin(begin, Paced(0.0, backward_s).release(begin))
        self._gradients.compute(self._step)
        _, took, end = one.end(self._step)
        self._step += 1
        return Taken(end - took.compute_end, took.comm_s, took.compress_s)


def steps_of(names: list[str], steps: int) -> dict[str, tuple[list[Taken], list[Taken]]]:
    """By compressor, this rank's steps with all communication after backward, and overlapped."""
    torch.set_num_threads(1)
    group = group_of_all()
    found: dict[str, tuple[list[Taken], list[Taken]]] = {}
    for name in names:
        replay = Replay(name, group)
        for _ in range(UNSETTLED):
            replay.step(True, 0.0)
        found[name] = ([], [])
        for _ in range(steps):
            after = replay.step(True, 0.0)
            backward_s = replay.exchange.workers.agree(after.exposed_s, "mean")
            found[name][0].append(after)
            found[name][1].append(replay.step(False, backward_s))
        replay.exchange.close()
    return found


def hidden(name: str, by_rank: list[tuple[list[Taken], list[Taken]]]) -> float:
    """Print a line of the table; the share of the exchange that overlap hides."""
    after, during = (
        statistics.median(
            max(taken[0] for taken in step)
            for step in zip(*(rank[arm] for rank in by_rank), strict=True)
        )
        for arm in (0, 1)
    )
    comm, compress = (
        statistics.median(step[column] for step in by_rank[0][0]) for column in (1, 2)
    )
    share = 1 - during / after
    cells = (comm, compress, after, during)
    print(f"{name:18}", *(f"{1e3 * cell:9.1f}" for cell in cells), f"{share:8.1%}")
    return share


def main() -> None:
    names = sorted(path.stem for path in CHOICES.glob("*.yaml"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--mbit", type=float, default=200)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    kernels.compiled()  # before the ranks are forked
    found = on_ranks(arguments.nodes, arguments.mbit, steps_of, arguments.only, arguments.steps)
    print(f"{arguments.nodes} nodes, {arguments.mbit:.0f} Mbit/s; ms of an exchange")
    print(f"{'':18} {'comm':>9} {'compress':>9} {'after':>9} {'overlap':>9} {'hidden':>8}")
    shares = {name: hidden(name, [rank[name] for rank in found]) for name in arguments.only}
    missed = [name for name, share in shares.items() if share < TARGET]
    print(f"target >= {TARGET:.0%}:", f"missed by {', '.join(missed)}" if missed else "met by all")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    enclosed()
    main()
