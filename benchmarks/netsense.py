"""NetSenseML's controller in a closed loop with a model of a link, over rates and variants.

    python benchmarks/netsense.py [--latency_ms 1] [--exchanges 1000]

Workers receive what the others gather of ResNet-18 (int64 positions; float16 values and twice as
many below a ratio of 0.1), and an exchange takes latency + received bytes / rate. The controller is
the real one; nothing is sent. Prints the mean ratio and exchange time after start-up. As published
the ratio stays at its floor of 0.005, whatever the window; `bdp_gain` lifts it, to a multiple of
the smallest exchange that does not depend on the rate. (From a ratio of 0.05 on a ring's all-reduce
is less.) The same over real packets, without training:

    python -m harness -m method=netsense controller.bdp_gain=1,2 model=resnet18_cifar \
        dataset=cifar100 emulation.compute=replay workers=8 steps=60 profile.rate_mbit=200,800
"""

import argparse
from collections.abc import Callable, Iterator
from statistics import mean
from typing import Any, NamedTuple

from controllers.base import Observation
from controllers.netsense import NetSense

WORKERS, ELEMENTS = 8, 11_227_812  # ResNet-18 with 100 classes
RATES_MBIT = (*range(200, 2001, 200), 10_000)
BYTES_PER_MBIT = 125_000
SETTLED = 100  # exchanges left out of the means: start-up, and its way down
COMPUTE_S = 0.1  # between two exchanges, as the clock of the degrading network runs
DEGRADING_S = 60.0  # that it keeps a rate
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "window 10": {"window": 10},
    "window bbr": {"window": "bbr"},
    "gain 2": {"bdp_gain": 2.0},
    "gain 4": {"bdp_gain": 4.0},
    "gain 8": {"bdp_gain": 8.0},
    "gain 32": {"bdp_gain": 32.0},
    "gain 4, bbr": {"bdp_gain": 4.0, "window": "bbr"},
}


class Exchange(NamedTuple):
    time_s: float
    ratio: float
    took_s: float


def received_bytes(ratio: float) -> int:
    """What a worker receives of one exchange at this ratio."""
    if ratio == 1:
        return 2 * (WORKERS - 1) * 4 * ELEMENTS // WORKERS
    entries, entry_bytes = (2 * ratio, 2 + 8) if ratio < 0.1 else (ratio, 4 + 8)
    return (WORKERS - 1) * int(entries * ELEMENTS) * entry_bytes


def loop(
    controller: NetSense, rate_mbit: Callable[[float], float], latency_s: float
) -> Iterator[Exchange]:
    """Exchange after exchange, for ever; `rate_mbit` is a function of time in seconds."""
    ratio, time_s, step = controller.density(None), 0.0, 0
    while True:
        size = received_bytes(ratio)
        took_s = latency_s + size / (BYTES_PER_MBIT * rate_mbit(time_s))
        time_s += COMPUTE_S + took_s
        yield Exchange(time_s, ratio, took_s)
        ratio = controller.density(_observation(step, time_s, ratio, took_s, size))
        step += 1


def _observation(step: int, time_s: float, ratio: float, took_s: float, size: int) -> Observation:
    return Observation(
        step=step,
        time_s=time_s,
        density=ratio,
        comm_s=took_s,
        compress_s=0.0,
        compute_s=COMPUTE_S,
        backward_s=COMPUTE_S,
        overlap_window_s=0.0,
        exposed_s=took_s,
        sent_bytes=size,
        received_bytes=size,
        dense_bytes=4 * ELEMENTS,
        workers=WORKERS,
    )


def settled(variant: dict, rate_mbit: float, latency_s: float, exchanges: int) -> str:
    """Mean ratio and exchange time on a link that does not change."""
    found = loop(NetSense(**variant), lambda time_s: rate_mbit, latency_s)
    some = [next(found) for _ in range(SETTLED + exchanges)][SETTLED:]
    return _cell(some)


def degrading(variant: dict, latency_s: float) -> Iterator[str]:
    """The same for every rate of a link that falls from 2000 to 200 Mbit/s in steps."""
    rates = RATES_MBIT[-2::-1]
    found = loop(
        NetSense(**variant),
        lambda time_s: rates[min(len(rates) - 1, int(time_s // DEGRADING_S))],
        latency_s,
    )
    past = [next(found)]
    while past[-1].time_s < len(rates) * DEGRADING_S:
        past.append(next(found))
    for number in range(len(rates)):
        start = number * DEGRADING_S
        yield _cell([one for one in past if start <= one.time_s < start + DEGRADING_S])


def _cell(some: list[Exchange]) -> str:
    took_ms = 1000 * mean(one.took_s for one in some)
    return f"{mean(one.ratio for one in some):8.4f}{took_ms:7.0f}"


def main(latency_ms: float, exchanges: int) -> None:
    latency_s = latency_ms / 1000
    print(f"mean ratio and exchange in ms; {WORKERS} workers, latency {latency_ms} ms")
    print(f"{'Mbit/s':>8}" + "".join(f"{name:>15}" for name in VARIANTS), "   all-reduce, ms")
    for rate in RATES_MBIT:
        cells = [settled(variant, rate, latency_s, exchanges) for variant in VARIANTS.values()]
        dense_ms = latency_ms + 1000 * received_bytes(1.0) / (BYTES_PER_MBIT * rate)
        print(f"{rate:8d}{''.join(cells)}{dense_ms:15.0f}")
    print(f"\none link that falls from 2000 to 200 Mbit/s, {DEGRADING_S:.0f} s a rate")
    columns = [list(degrading(variant, latency_s)) for variant in VARIANTS.values()]
    for rate, *cells in zip(RATES_MBIT[-2::-1], *columns, strict=True):
        print(f"{rate:8d}{''.join(cells)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency_ms", type=float, default=1.0)
    parser.add_argument("--exchanges", type=int, default=1000)
    main(**vars(parser.parse_args()))
