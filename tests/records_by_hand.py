"""Run directories written by hand, as a run would leave them, for the tests of their readers."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from harness.config.parts import presets
from harness.records import manifest
from harness.records.run_directory import (
    Evaluation,
    Events,
    LinkSample,
    Step,
    Table,
    read_json,
    write_json,
)

FIXED = {"_target_": "controllers.fixed.Fixed"}


def step(number: int, rank: int = 0, **known: Any) -> Step:
    """A step of 0.5 s: 0.3 compute, 0.05 compression, 0.15 exposed; 10 samples, a tenth sent."""
    usual: dict[str, Any] = {"time_s": 0.5 * (number + 1), "loss": 1.0, "samples": 10,
                             "compute_before_first_bucket_s": 0.1, "compute_s": 0.3,
                             "compress_s": 0.05, "comm_s": 0.2, "exposed_s": 0.15,
                             "backward_s": 0.2, "overlap_window_s": 0.2, "workers": 2,
                             "sent_bytes": 100, "received_bytes": 100, "dense_bytes": 1000,
                             "density": 0.1, "controller": "{}"}  # fmt: skip
    return Step(step=number, rank=rank, **{**usual, **known})


def parts(method: str) -> dict[str, Any]:
    """What a method is made of: a preset, or one with a density; nothing of any other name."""
    preset, _, density = method.rpartition("_")
    fixed = {"controller": FIXED | {"density": float(density)}} if preset in presets() else {}
    found = presets().get(method) or presets().get(preset, {}) | fixed
    return {key: value for key, value in found.items() if key != "parallel"}


def config(method: str, seed: int = 0, **other: Any) -> dict[str, Any]:
    """Of a run by its method's name; of a name that is no method's, without its parts."""
    usual: dict[str, Any] = parts(method) | {
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
    environment: dict[str, Any] | None = None,
    events: list[dict[str, Any]] | None = None,
) -> Path:
    """A run directory, succeeded and valid unless `status` and `summary` say otherwise."""
    path.mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(config), path / "config.yaml")
    write_json(path / "summary.json", {"valid": True, "reasons": [], **(summary or {})})
    if environment is not None:
        write_json(path / "environment.json", environment)
    for event in events or []:
        Events(path).append(**event)
    tables = {"steps.csv": steps, "evaluations.csv": evaluations, "links.csv": links}
    for name, rows in tables.items():
        table = Table(path, name)
        table.header()
        table.append(*(rows or []))
        table.close()
    write_json(path / "status.json", {"state": "succeeded", "pid": 1, **(status or {})})
    seal(path)
    return path


def seal(path: Path) -> None:
    """Make the manifest of a run directory fit its files, after a change by hand."""
    told = read_json(path / "status.json") or {}
    write_json(path / "status.json", told | {"files": manifest.of(path)})


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


def contended(path: Path, method: str = "allreduce", **other: Any) -> Path:
    """A run of four workers on a dumbbell: 10 s at 8 Mbit/s, then 4; 1 MB each s; flows 2..5 s."""
    rates = {second: 8.0 if second <= 10 else 4.0 for second in range(21)}
    links = [
        LinkSample(float(s), link, rate, rate, 7 + 10**6 * s, 1000 if s == 3 else 0, 2 * s)
        for s, rate in rates.items()
        for link in ("trunk_up", "trunk_down")
    ]
    held = {"rate_mbit": 4.0, "netem": [{"delay_us": 10_000, "jitter_us": 2000, "loss": 0.0}]}
    changed = {"rate_mbit": 4.0, "delay_ms": 9.0, "jitter_ms": 1.0, "loss": 0.25, "reorder": 0.0}
    network = {"left": 2, "queue_bytes": 50_000, "congestion_control": "cubic"}
    network |= {"links": {"trunk_up": held, "trunk_down": held}}
    flow = {"pair": "trunk_up", "flow": "flow0"}
    events: list[dict[str, Any]] = [
        {"event": "flow_started", "time_s": 2.0, **flow},
        {"event": "flow_stopped", "time_s": 5.0, **flow},
        {"event": "conditions", "time_s": 10.0, "planned_s": 10.0, "links": {"trunk_up": changed}},
        {"event": "flow_started", "time_s": 15.0, **flow},
    ]
    proof = {
        "ceiling": {"needed_mbit": 8.0, "carried_mbit": 80.0},
        "probe": [
            {"link": name, "measured_mbit": found, "expected_mbit": 10.0, "ok": True}
            for name, found in (("trunk_up", 10.1), ("trunk_down", 9.5))
        ],
        "audit": {"cpu_idle_share": 0.5, "cpu_others_share": 0.125, "late_ms_p99": 3.0,
                  "carried_over_allowed": 0.9, "cpu_pressure": 0.25, "changed_outside": 0},
        "delivery": {"delivered": 0.97, "delivered_worst": 0.9},
        "pauses": 0,
        "flows": [{"pair": "0-1", "sent_bytes": 100, "received_bytes": 90, "retransmits": 4}],
        "passed_bytes": {"up0": 220, "up1": 110, "trunk_up": 330},
        "sent_bytes_by_node": {"0": 100, "1": 100},
    }  # fmt: skip
    steps = [step(number, rank, time_s=2.0 * number + 2) for number in range(10) for rank in (0, 1)]
    return run(
        path, config(method, workers=4), steps, None, links,
        summary={"proof": proof, **other}, events=events,
        environment={"dilation": 2.0, "network": network},
    )  # fmt: skip


def tear(path: Path) -> None:
    """A crash in the middle of the last row."""
    path.write_text(path.read_text() + "9999,1,0.1")
