"""Command `doctor --calibrate`: fit virtual time to this machine, as a choice of `network`.

It measures collectives on real shaped links of several rates (alone and as buckets in a row),
transfers over long links if the kernel has netem, and compressors on one core. A busy machine
measures longer times with larger errors. The result is used by `network=calibrated`.

With `--testbed ROWS.csv`, rows that others measured, it measures nothing. It fits the constants of
each testbed to at most four of its rows, the inputs, and predicts the others.
"""

import os
import sys
from pathlib import Path

import torch
from rich.console import Console

from harness.calibrate import choice, compression, device, fit, links, testbed, windows
from harness.cli.arguments import Arguments
from harness.config.network import CALIBRATED
from harness.config.typed import BadSetting
from harness.emulation import impairments
from harness.emulation.links import BURST_US
from harness.emulation.topology import PACKET_S
from harness.fidelity import report
from harness.fidelity.assess import assess_rows
from harness.fidelity.bench import bench_files, load_bench
from harness.fidelity.measurement import BadMeasurement, read

PARTS = ("links", "windows", "compression")
WIDTH = 200  # columns of printed tables
BUSY = 1.0  # load average above which we warn


def main(given: Arguments) -> int:
    """Measure this machine and write a choice of `network`, or of `network/device` with --device.

    Print the file's name. Return 0, or 1 if the file exists or measuring failed. Raise BadSetting
    for an unknown part or name.
    """
    name, force = given.flags.get("--name", CALIBRATED), "--force" in given.flags
    if kind := given.choice("--device", ("cuda", "cpu")):
        return _device(kind, name, force)
    if testbed_file := given.flags.get("--testbed"):
        return _testbeds(Path(testbed_file), force)
    only = given.flags.get("--only", ",".join(PARTS)).split(",")
    if not {*only} <= {*PARTS}:
        raise BadSetting(f"--only must be of {','.join(PARTS)}, got {','.join(only)!r}")
    if not name.isidentifier():
        raise BadSetting(f"--name must be letters, digits and _, got {name!r}")
    file = choice.path_of(name)
    if file.exists() and not force:
        print(f"{file} is there already: give another --name, or --force", file=sys.stderr)
        return 1
    if (load := os.getloadavg()[0]) > BUSY:
        print(f"load {load:.1f}: others are at work, so times will be too long", file=sys.stderr)
    try:
        found = _links() if "links" in only else None
        long_ways = _windows() if "windows" in only else None
        times = _compression() if "compression" in only else {}
        partly = file.exists() and set(only) != set(PARTS)
        before = file.read_text() if partly else ""
        file.write_text(choice.text(found, times, long_ways, before))
    except (links.CalibrationError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: network={name}")
    return 0


def _device(kind: str, name: str, force: bool) -> int:
    if kind == "cuda" and not torch.cuda.is_available():
        print("--device cuda needs an NVIDIA GPU and its driver; or --device cpu", file=sys.stderr)
        return 1
    file, where = device.path_of(name), torch.device(kind)
    if file.exists() and not force:
        print(f"{file} is there already: give another --name, or --force", file=sys.stderr)
        return 1
    samples = []
    for each in device.measured(where):
        samples.append(each)
        print(f"{each.compressor:18} rank {each.rank:2} {each.layout.matrices:3} matrices of side "
              f"{each.layout.side:5}: {1e6 * each.seconds:10.1f} us", flush=True)  # fmt: skip
    file.write_text(device.text(device.name_of(where), compression.fitted(samples)))
    print(f"{file}: network/device={name}")
    return 0


def _testbeds(path: Path, force: bool) -> int:
    """Fit testbeds and print errors; `force` updates their files. Return 1 if reading fails."""
    try:
        rows = read(path)
        for file in bench_files():
            bench = load_bench(file)
            if not any(map(bench.has, rows)):
                continue
            found = testbed.fitted(bench, rows)
            own = assess_rows(filter(found.has, rows), [found])
            report.benchmark(Console(width=WIDTH, highlight=False), [found], own)
            if force:
                testbed.write(file, found)
                print(file)
    except (BadMeasurement, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _links() -> fit.Links:
    samples = links.measured(links.MeasurementGrid())
    cores = os.cpu_count()
    found = fit.links(samples, cores, fit.Bucket(BURST_US / 1e6, PACKET_S))
    columns = ("nodes", 5), ("Mbit/s", 7), ("bytes", 9), ("ms", 9), ("fitted", 9)
    print(f"{'collective':20}", *(f"{name:>{width}}" for name, width in columns))
    for each in samples:
        took_ms, fitted_ms = 1000 * each.seconds, 1000 * fit.predicted_s(found, each, cores)
        print(
            f"{each.collective:20} {each.nodes:5} {each.rate_mbit:7.0f} {each.nbytes:9} "
            f"{took_ms:9.2f} {fitted_ms:9.2f}"
        )
    print(f"{found}\n")
    return found


def _windows() -> windows.TcpWindows | None:
    """Measure and fit TCP windows; print a note and return None if the kernel has no netem."""
    if not impairments.available():
        print("no netem in this kernel: windows and slow start are not measured", file=sys.stderr)
        return None
    rows = windows.measured()
    found = windows.fit(rows)
    for each in rows:
        print(f"send, {each.network}, {each.bytes} bytes: {each.value:.1f} ms")
    print(f"{found}\n")
    return found


def _compression() -> dict[str, compression.FittedCost]:
    found = compression.fitted(list(compression.measured(compression.compositions())))
    for name, (cost, _, worst) in found.items():
        told = ", ".join(f"{key} {value}" for key, value in compression.spelled(cost).items())
        print(f"{name:20} {told}; off by {worst:.0%} at most")
    return found
