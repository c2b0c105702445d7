"""Writes the traces of this folder: synthetic, in the style of recordings; always the same bytes.

python profiles/traces/make.py [FOLDER]
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
Row = tuple[float, ...]


def lte_drive() -> Iterator[Row]:
    """600 s in a car: rate and delay follow the cell, and stall at each handover."""
    random = Random("lte_drive")
    fading, handover_s = 0.0, 45.0
    for second in range(600):
        fading = 0.85 * fading + 0.35 * random.gauss(0, 1)  # correlated over some 6 s
        cell = math.cos((second - handover_s) / 40)  # nearer to and farther from the mast
        rate = 22 * math.exp(0.7 * cell + 0.6 * fading)
        stalled = 0 <= second - handover_s < 2
        if second - handover_s > 2:
            handover_s += random.uniform(35, 90)
        rate = 0.4 if stalled else min(95.0, max(0.8, rate))
        delay = 25 + 60 / math.sqrt(rate) + (120 if stalled else 0)
        jitter = delay * random.uniform(0.1, 0.3)
        loss = 0.03 if stalled else 0.001
        yield second, round(rate, 2), round(delay, 1), round(jitter, 1), loss


def office_wifi() -> Iterator[Row]:
    """300 s on a shared access point: steps of the rate control, and others' airtime."""
    random = Random("office_wifi")
    steps_mbit = (58.5, 117.0, 175.5, 234.0, 351.0, 468.0)  # 802.11 rates, 2 streams
    step, busy = 4, 0.3
    for tick in range(600):
        step = min(5, max(0, step + random.choice((-1, 0, 0, 0, 0, 1))))
        burst = random.random() < 0.04  # somebody syncs a disk
        busy = min(0.9, max(0.05, 0.9 * busy + 0.03 + 0.05 * random.gauss(0, 1) + 0.35 * burst))
        rate = 0.6 * steps_mbit[step] * (1 - busy)
        delay = 1.5 + 10 * busy**2
        loss = 0.002 + 0.02 * (busy > 0.7)
        yield tick / 2, round(rate, 1), round(delay, 2), round(0.6 * delay, 2), loss


def diurnal_wan() -> Iterator[Row]:
    """A day between two sites in 24 minutes: an emulated minute stands for an hour."""
    random = Random("diurnal_wan")
    noise = 0.0
    for tick in range(480):
        hour = tick / 20
        office = math.exp(-(((hour - 14) / 4) ** 2))  # people at work
        evening = 0.8 * math.exp(-(((hour - 21) / 1.8) ** 2))  # and at home
        backup = 0.5 * (2.0 <= hour < 3.5)
        noise = 0.9 * noise + 0.03 * random.gauss(0, 1)
        load = min(0.92, max(0.04, 0.08 + 0.7 * max(office, evening, backup) + noise))
        delay = 18 + 3 * load / (1 - load)
        yield tick * 3, round(950 * (1 - load), 1), round(delay, 2), round(0.1 * delay, 2)


def cloud_tenant() -> Iterator[Row]:
    """600 s of a virtual machine: full rate until its credit is spent, noisy neighbours always."""
    random = Random("cloud_tenant")
    credit_gbit, neighbours, time_s = 600.0, 0, 0.0
    while time_s < 600:
        neighbours = min(6, max(0, neighbours + random.choice((-1, -1, 0, 0, 0, 1, 1))))
        ceiling = 5000.0 if credit_gbit > 0 else 1250.0
        rate = ceiling / (1 + 0.22 * neighbours) * random.uniform(0.93, 1.0)
        length_s = round(random.uniform(0.5, 3.5), 1)
        yield round(time_s, 1), round(rate)
        credit_gbit -= max(0.0, rate - 1250) * length_s / 1000
        time_s += length_s


def satellite_pass() -> Iterator[Row]:
    """300 s under low-orbit satellites: delay follows elevation, links move every 15 s."""
    random = Random("satellite_pass")
    quality, lowest_ms = 1.0, 12.0
    for tick in range(400):
        time_s = tick * 0.75
        into_s = time_s % 15
        if into_s == 0:
            quality, lowest_ms = random.uniform(0.45, 1.0), random.uniform(11, 16)
        moving = into_s < 0.75
        sky = abs(math.sin(math.pi * time_s / 150))  # two passes
        rate = 210 * quality * (0.55 + 0.45 * sky) * random.uniform(0.85, 1.0)
        rate = 0.25 * rate if moving else rate
        delay = lowest_ms + 9 * (1 - sky) + (25 if moving else 0)
        loss = 0.02 if moving else 0.0015
        yield time_s, round(rate, 1), round(delay, 1), round(random.uniform(1, 3), 1), loss


def lte_walk() -> Iterator[int]:
    """20 s on foot: milliseconds at which one packet of 1500 bytes could be delivered."""
    random = Random("lte_walk")
    fading, owed = 0.0, 0.0
    for ms in range(1, 20_001):
        if ms % 20 == 1:
            fading = 0.95 * fading + 0.25 * random.gauss(0, 1)
        silent = 11_000 <= ms < 11_900  # behind a building
        owed += 0 if silent else min(1.6, 0.3 * math.exp(fading)) * random.uniform(0.5, 1.5)
        while owed >= 1:
            owed -= 1
            yield ms


PATH = ("time_s", "rate_mbit", "delay_ms", "jitter_ms")
TRACES = {
    lte_drive: (*PATH, "loss"),
    office_wifi: (*PATH, "loss"),
    diurnal_wan: PATH,
    cloud_tenant: PATH[:2],
    satellite_pass: (*PATH, "loss"),
}


def make(folder: Path) -> None:
    """Write every trace; the first line of each says what it is."""
    for trace, columns in TRACES.items():
        says = (trace.__doc__ or "").strip()
        lines = [f"# Synthetic, not a recording (made by make.py): {says}", ",".join(columns)]
        lines += [",".join(f"{value:g}" for value in row) for row in trace()]
        (folder / f"{trace.__name__}.csv").write_text("\n".join(lines) + "\n")
    text = "".join(f"{ms}\n" for ms in lte_walk())
    (folder / "lte_walk.mahimahi").write_text(text)
    cooked = "".join(f"{row[0]:g}\t{row[1]:g}\n" for row in lte_drive())
    (folder / "lte_drive.cooked").write_text(cooked)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
