"""Collectives on shaped links against the bound of the busiest link.

all-reduce:  2(P-1)/P x bytes x 8 / (0.956 x rate), 45 MB          target <= 1.10
all-gather, equal pieces:  (P-1) x piece x 8 / (0.956 x rate)      target <= 1.15
all-gather, pieces 2/3 .. 4/3 of the mean:  (total - smallest)     target <= 1.08

    python benchmarks/collectives.py [--nodes 4 8] [--mbit 50 200 800] [--repeats 5]
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist

from harness.calibrate.ranks import enclosed, group_of_all, on_ranks
from harness.engine.exchange.collectives import Workers

PAYLOAD_SHARE = 1448 / 1514  # of Ethernet frames at MTU 1500 with TCP timestamps
GRADIENT_BYTES = 45_000_000
PIECE_BYTES = 4_000_000


def times(repeats: int, lengths: list[int] | None) -> list[float]:
    """Seconds of each repetition on this rank: all-reduce, or all-gather of `lengths` floats."""
    workers, taken = Workers(group_of_all()), []
    if lengths is None:
        tensor = torch.ones(GRADIENT_BYTES // 4)
    else:
        tensor = torch.ones(lengths[workers.rank])
    for _ in range(repeats + 1):  # the first finds the connections cold
        dist.barrier()
        begin = time.monotonic()
        if lengths is None:
            workers.all_reduce(tensor)
        else:
            workers.all_gather(tensor)
        taken.append(time.monotonic() - begin)
    return taken[1:]


def ratio(nodes: int, rate_mbit: float, repeats: int, lengths: list[int] | None) -> list[float]:
    """Each repetition's slowest rank over the bound."""
    if lengths is None:
        busiest_bytes = 2 * (nodes - 1) / nodes * GRADIENT_BYTES
    else:
        busiest_bytes = 4 * (sum(lengths) - min(lengths))
    bound_s = busiest_bytes * 8 / (PAYLOAD_SHARE * rate_mbit * 1e6)
    by_rank = on_ranks(nodes, rate_mbit, times, repeats, lengths)
    return [max(taken) / bound_s for taken in zip(*by_rank, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--mbit", type=float, nargs="+", default=[50, 200, 800])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'collective':24} {'nodes':>5} {'Mbit/s':>7} {'median':>7} {'worst':>7} {'target':>7}")
    for nodes in arguments.nodes:
        mean = PIECE_BYTES // 4
        spread = [round(mean * (2 + 2 * n / (nodes - 1)) / 3) for n in range(nodes)]
        cases = (
            ("all-reduce 45 MB", None, 1.10),
            ("all-gather equal", [mean] * nodes, 1.15),
            ("all-gather 2x spread", spread, 1.08),
        )
        for rate_mbit in arguments.mbit:
            for name, lengths, target in cases:
                found = ratio(nodes, rate_mbit, arguments.repeats, lengths)
                median, worst = statistics.median(found), max(found)
                row = (
                    f"{name:24} {nodes:5} {rate_mbit:7.0f} {median:7.3f} {worst:7.3f} {target:7.2f}"
                )
                print(row, flush=True)


if __name__ == "__main__":
    enclosed()
    main()
