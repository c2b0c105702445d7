"""Run directories written by hand, as a run would leave them, for the tests of their readers."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from harness.records import Evaluation, LinkSample, Step, Table, write_json


def step(number: int, rank: int = 0, **known: Any) -> Step:
    """A step of 0.5 s: 0.3 compute, 0.05 compression, 0.15 exposed; 10 samples, a tenth sent."""
    usual: dict[str, Any] = {
        "time_s": 0.5 * (number + 1),
        "loss": 1.0,
        "samples": 10,
        "compute_s": 0.3,
        "compress_s": 0.05,
        "comm_s": 0.2,
        "exposed_s": 0.15,
        "sent_bytes": 100,
        "received_bytes": 100,
        "dense_bytes": 1000,
        "density": 0.1,
        "controller": "{}",
    }
    return Step(step=number, rank=rank, **{**usual, **known})


def config(method: str, seed: int = 0, **other: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "experiment": "by_hand",
        "workers": 2,
        "steps": 10,
        "batch_size": 10,
        "seed": seed,
        "target": {"metric": "accuracy", "value": 0.8},
        "method": {"name": method},
        "model": {"name": "mlp"},
        "dataset": {"name": "digits"},
        "profile": {"_target_": "profiles.constant.Constant", "rate_mbit": 10},
        "emulation": {"dilation": 1.0, "compute": "measured"},
    }
    return {**usual, **other}


def run(
    path: Path,
    config: dict[str, Any],
    steps: list[Step] | None = None,
    evaluations: list[Evaluation] | None = None,
    links: list[LinkSample] | None = None,
    status: dict[str, Any] | None = None,
    summary: dict[str, Any] | None = None,
) -> Path:
    """A run directory, succeeded and valid unless `status` and `summary` say otherwise."""
    path.mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(config), path / "config.yaml")
    write_json(path / "status.json", {"state": "succeeded", "pid": 1, **(status or {})})
    write_json(path / "summary.json", {"valid": True, "reasons": [], **(summary or {})})
    tables = {"steps.csv": steps, "evaluations.csv": evaluations, "links.csv": links}
    for name, rows in tables.items():
        table = Table(path, name)
        table.header()
        table.append(*(rows or []))
        table.close()
    return path


def sweep(folder: Path, methods: dict[str, float], seeds: int = 2, steps: int = 10) -> Path:
    """Runs of two workers under `folder`; `methods` gives the seconds of a step of each method.

    Evaluated at half time and at the end: accuracy 0.6 + seed / 100, then 0.9 + seed / 100.
    """
    for method, step_s in methods.items():
        for seed in range(seeds):
            rows = [
                step(number, rank, time_s=step_s * (number + 1))
                for number in range(steps)
                for rank in range(2)
            ]
            evaluations = [
                Evaluation(steps // 2, step_s * steps / 2, "accuracy", 0.6 + seed / 100),
                Evaluation(steps, step_s * steps, "accuracy", 0.9 + seed / 100),
            ]
            links = [
                LinkSample(time_s, link, rate, rate, 0, 0, 0)
                for time_s in (0.0, step_s * steps / 2, step_s * steps)
                for link, rate in (("up0", 10.0), ("up1", 5.0))
            ]
            run(folder / f"{method}-{seed}", config(method, seed), rows, evaluations, links)
    return folder


def tear(path: Path) -> None:
    """A crash in the middle of the last row."""
    path.write_text(path.read_text() + "9999,1,0.1")
