"""Payload rate of one TCP flow from node to node, over what its shaped links should carry.

    python benchmarks/goodput.py [--rates 10 1000] [--seconds 1.5] [--congestion-control cubic]

Runs itself again in namespaces of its own, with or without root. The contract is a ratio >= 0.95.
"""

import argparse
import os
import sys
import time

from harness.network.probe import PAYLOAD_SHARE, Path, measure
from harness.network.star import Star
from profiles.base import Extremes, Link, Way

RATES_MBIT = (10, 50, 200, 800, 1000, 2000, 5000, 10_000)
LEAST = 0.95
SPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]


class Flat:
    """The same rate for ever."""

    def __init__(self, rate_mbit: float) -> None:
        self.rate_mbit = rate_mbit

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return Link(self.rate_mbit)

    def flows(self, time_s: float) -> int:
        return 0

    def extremes(self) -> Extremes:
        return Extremes(self.rate_mbit, self.rate_mbit)


def one(rate_mbit: float, seconds: float, congestion_control: str) -> float:
    """Print and return the ratio at one rate; the flow crosses an uplink and a downlink."""
    star = Star(congestion_control=congestion_control)
    with star.up(2, Flat(rate_mbit), 1.0) as network:
        sender, receiver = network.nodes
        path = Path(sender.namespace, receiver.namespace, receiver.address, rate_mbit)
        busy, start = time.process_time(), time.monotonic()
        measured = measure([path], seconds)[0]
        busy, took = time.process_time() - busy, time.monotonic() - start
        drops = sum(count.drops for count in network.counters().values())
    ratio = measured / rate_mbit / PAYLOAD_SHARE
    print(f"{rate_mbit:>9.0f} {measured:>10.1f} {ratio:>7.4f} {drops:>6} {busy / took:>9.2f}")
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES_MBIT, help="Mbit/s")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--congestion-control", default="cubic")
    options = parser.parse_args()
    if os.getpid() != 1:
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        os.execvp(SPACES[0], [*SPACES, *user, sys.executable, *sys.argv])
    print("rate_mbit payload_mbit  ratio  drops cpu_share")
    ratios = [one(rate, options.seconds, options.congestion_control) for rate in options.rates]
    print(f"least ratio {min(ratios):.4f}, contract {LEAST}")
    return int(min(ratios) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
