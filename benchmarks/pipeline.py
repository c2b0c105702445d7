"""What DCT gains in time over shaped links, and where a step goes (Gupta et al., 2021, section V).

Every line is a run of the experiments dct_fig8a, dct_fig8c, dct_table5 and dct_hybrid: the median
step beside that of the run without compression, its parts as means over workers, and whether the
run is valid. What a threshold that is kept gains depends on what sorting costs beside computing and
sending, so dct_fig8a and dct_fig8c are calibrated here: one sort of all gradients is timed, and
rate and dilation are chosen for which L = 1 should take 11 % longer than no compression and
L = 1000 23 % less, as printed in the paper, nothing else being counted. What comes out is measured.

    python benchmarks/pipeline.py [--calibrate] [--only dct_fig8a dct_hybrid] [--methods ...]
"""

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir

from compressors.dct_dp import by_sort
from harness.config.settings import Settings
from harness.config.sweep import plain_settings
from harness.reporting.analysis import load

CONF = Path(__file__).resolve().parents[1] / "conf"
SLOWER, FASTER = 0.11, 0.23  # figure 8a: at L = 1 and at L = 1000, relative to no compression
DENSITY, ENTRY_BYTES, VALUE_BYTES = 0.05, 8, 4
PAYLOAD = 0.956  # of a link's rate, by TCP at MTU 1500
EXPERIMENTS = ("dct_fig8a", "dct_fig8c", "dct_table5", "dct_hybrid")
CALIBRATED = ("dct_fig8a", "dct_fig8c")
REPEATS = 9
UNSETTLED = 5  # steps


class Calibration(NamedTuple):
    """What makes sorting cost what it did in the paper, beside a step without compression."""

    sort_s: float  # of all gradients, here
    step_s: float  # without compression, real
    rate_mbit: float  # real
    dilation: float


def settings(experiment: str) -> Settings:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plain_settings(compose("config", [f"+experiment={experiment}"]))


def calibration(found: Settings) -> Calibration:
    """Of the experiment `found`; workers exchange after backward, so that nothing is hidden."""
    data, workers = found.build("dataset"), found["workers"]
    model = found.build("model").build(data.shape, data.classes)
    sizes = [parameter.numel() for parameter in model.parameters()]
    sort_s = _sorting_s(sizes, workers)
    step_s = sort_s / (SLOWER + FASTER)
    elements = sum(sizes)
    dense_bytes = 2 * (workers - 1) / workers * VALUE_BYTES * elements
    sparse_bytes = (workers - 1) * ENTRY_BYTES * DENSITY * elements
    comm_s = FASTER * step_s / (1 - sparse_bytes / dense_bytes)
    rate_mbit = dense_bytes * 8e-6 / (PAYLOAD * comm_s)
    times = found.build("model").times.at(found["batch_size"])
    dilation = (step_s - comm_s) / (times.forward_s + times.backward_s)
    return Calibration(sort_s, step_s, rate_mbit, dilation)


def _sorting_s(sizes: list[int], workers: int) -> float:
    """Seconds of a sort of gradients of these sizes, while so many workers sort at once."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        return max(pool.map(_sorting_here_s, [sizes] * workers))


def _sorting_here_s(sizes: list[int]) -> float:
    torch.set_num_threads(1)
    gradients = [torch.randn(size) for size in sizes]
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for gradient in gradients:
            by_sort(gradient, DENSITY)
        taken.append(time.perf_counter() - begin)
    return min(taken)  # when nothing else was in the way


def calibrated(experiment: str) -> list[str]:
    """Overrides, which are printed; emulated rates are real ones times the dilation."""
    found = calibration(settings(experiment))
    overrides = [
        f"profile.rate_mbit={found.rate_mbit * found.dilation:.4g}",
        f"emulation.dilation={found.dilation:.3g}",
    ]
    print(
        f"{experiment}: one sort of all gradients takes {1e3 * found.sort_s:.1f} ms here; a step "
        f"of {1e3 * found.step_s:.0f} ms at {found.rate_mbit:.0f} Mbit/s: {' '.join(overrides)}",
        flush=True,
    )
    return overrides


def measured(experiment: str, overrides: list[str], results: Path) -> None:
    """Run the sweep and print its table."""
    command = [sys.executable, "-m", "harness", "-m", f"+experiment={experiment}", *overrides]
    subprocess.run([*command, f"results={results}", "report=false"], check=False)
    rows: Any = load.runs(results / experiment).itertuples()
    lines = {row.method: _line(row) for row in rows}
    dense = lines.get("allreduce", {"step": float("nan")})["step"]
    print(f"{experiment:18}{'step, ms':>10}{'gain':>8}{'compute':>9}{'compress':>9}{'exposed':>9}")
    for method, line in lines.items():
        parts = "".join(f"{1e3 * line[key]:9.1f}" for key in ("compute", "compress", "exposed"))
        gain = 1 - line["step"] / dense
        print(f"{method:18}{1e3 * line['step']:10.1f}{gain:8.1%}{parts}  {line['state']}")
    print(flush=True)


def _line(row: Any) -> dict[str, Any]:
    """Emulated seconds of a run."""
    steps = load.steps(row.path)
    counted = steps[steps.step >= UNSETTLED]
    ends = steps.groupby("step").time_s.max().diff()[UNSETTLED:]
    names = {"compute": "compute_s", "compress": "compress_s", "exposed": "exposed_s"}
    parts = {key: counted.groupby("rank")[column].median().mean() for key, column in names.items()}
    return parts | {"step": statistics.median(ends), "state": row.left_out or "valid"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibrate", action="store_true", help="print it, and run nothing")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    parser.add_argument("--methods", help="of the experiment's, such as allreduce,dct_dp")
    arguments = parser.parse_args()
    some = [f"method={arguments.methods}"] if arguments.methods else []
    for experiment in arguments.only:
        overrides = calibrated(experiment) if experiment in CALIBRATED else []
        if not arguments.calibrate:
            with tempfile.TemporaryDirectory() as results:
                measured(experiment, [*overrides, *some], Path(results))


if __name__ == "__main__":
    main()
