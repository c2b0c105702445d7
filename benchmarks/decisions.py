"""What a decision costs: microseconds an exchange of every controller, and times `fixed`.

python benchmarks/decisions.py [steps]
"""

import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from controllers.base import Observation

CONF = Path(__file__).resolve().parents[1] / "conf"
RUN = {"seed": 0, "workers": 8, "workers_per_node": 1, "profile": None}
ROUNDS = 5  # interleaved; the median is shown


def exchanges(steps: int) -> list[Observation]:
    """Of 25 M parameters over a link that changes its rate every 50 steps."""
    source, made = random.Random(0), []
    for step in range(steps):
        density = source.uniform(0.001, 0.1)
        rate = (1e9, 3e8, 6e8)[step // 50 % 3]
        received = int(density * 1.4e9)
        comm_s = 0.002 + received / rate * source.lognormvariate(0, 0.1)
        made.append(
            Observation(
                step=step,
                time_s=0.3 * step,
                density=density,
                comm_s=comm_s,
                compress_s=0.01,
                compute_s=0.3,
                backward_s=0.2,
                overlap_window_s=0.18,
                exposed_s=max(0.1 * comm_s, comm_s - 0.17),
                sent_bytes=received,
                received_bytes=received,
                dense_bytes=100_000_000,
                workers=8,
                grad_norm=source.uniform(1, 2),
                residual_norm=10.0,
                gain=0.8,
                captured=0.2,
            )
        )
    return made


def build(path: Path) -> Any:
    run = RUN | {"profile": OmegaConf.load(CONF / "profile" / "fluctuating.yaml")}
    return instantiate(OmegaConf.merge(run, {"part": OmegaConf.load(path)}).part)


def decision_us(path: Path, past: list[Observation]) -> float:
    controller = build(path)
    controller.density(None)
    begin = time.perf_counter()
    for seen in past:
        controller.density(seen)
        controller.state()
    return (time.perf_counter() - begin) / len(past) * 1e6


def main() -> None:
    past = exchanges(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    paths = sorted((CONF / "controller").glob("*.yaml"))
    took: dict[str, list[float]] = {path.stem: [] for path in paths}
    for _ in range(ROUNDS):
        for path in paths:
            took[path.stem].append(decision_us(path, past))
    usual = {name: statistics.median(each) for name, each in took.items()}
    for name, each in sorted(usual.items(), key=lambda pair: pair[1]):
        print(f"{name:16} {each:8.1f} us {each / usual['fixed']:8.1f} x fixed")


if __name__ == "__main__":
    main()
