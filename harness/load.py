"""Run directories -> DataFrames: one row per run, and the tables of one run."""

import hashlib
import io
import json
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pandas as pd
from omegaconf import OmegaConf

from harness import records, status

# What must be equal for two runs to be compared; a comparison varies the rest, method and seed.
CONDITIONS = ["experiment", "workers", "steps", "epochs", "batch_size", "target", "model"]
CONDITIONS += ["dataset", "optimizer", "workers_per_node", "profile", "network", "emulation"]


class NoRuns(ValueError):
    """A folder holds no run, or none that counts."""


class Run(NamedTuple):
    """One row of `runs`; what the directory does not say is None."""

    path: str
    run_id: str
    experiment: str
    method: str | None
    model: str | None
    dataset: str | None
    profile: str | None
    seed: int | None
    workers: int | None
    batch_size: int | None  # per worker
    steps: int | None
    dilation: float | None
    compute: str | None  # measured | paced | replay
    metric: str | None  # of the target; the target itself may be null
    target: float | None
    state: str
    valid: bool | None  # None before the run was judged
    reasons: str
    left_out: str  # why figures and averages leave the run out; "" = it counts
    ended: str
    setting: str  # short hash of `conditions`: runs of one setting may be compared
    conditions: dict[str, Any]


def runs(folder: Path | str) -> pd.DataFrame:
    """Every run, also failed ones, of a run directory, an experiment or the results root."""
    folder = Path(folder)
    found = {
        file.parent
        for depth in ("", "*/", "*/*/")
        for name in ("status.json", "config.yaml")
        for file in folder.glob(depth + name)
        if not file.parent.name.startswith(".")  # Hydra's own .hydra/config.yaml
    }
    if not found:
        raise NoRuns(f"no runs in {folder}: no folder there holds a status.json")
    return pd.DataFrame([_run(path) for path in sorted(found)], columns=list(Run._fields))


def steps(run: Path | str) -> pd.DataFrame:
    """steps.csv of the run directory `run`, one row per step and rank; empty when it has none."""
    return _table(Path(run), "steps.csv")


def evaluations(run: Path | str) -> pd.DataFrame:
    """evaluations.csv of the run directory `run`; empty when it has none."""
    return _table(Path(run), "evaluations.csv")


def links(run: Path | str) -> pd.DataFrame:
    """links.csv of the run directory `run`; empty when it has none."""
    return _table(Path(run), "links.csv")


def _table(run: Path, name: str) -> pd.DataFrame:
    types: dict[str, Any] = get_type_hints(records.TABLES[name])
    path = run / name
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # a torn last line is ignored
    if not whole:
        return pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in types.items()})
    return pd.read_csv(io.StringIO(whole), usecols=list(types), dtype=types)[list(types)]


def _run(path: Path) -> Run:
    config = _config(path)
    ending = records.read_json(path / "status.json") or {}
    summary = records.read_json(path / "summary.json") or {}
    state = status.state(path) or "interrupted"  # before it wrote its status
    reasons = "; ".join(map(str, summary.get("reasons") or []))
    conditions = _flat({key: config[key] for key in CONDITIONS if key in config})
    emulation = config.get("emulation") or {}
    target = config.get("target") or {}
    return Run(
        path=str(path),
        run_id=path.resolve().name,
        experiment=config.get("experiment") or path.resolve().parent.name,
        method=_name(config, "method"),
        model=_name(config, "model"),
        dataset=_name(config, "dataset"),
        profile=_name(config, "profile"),
        seed=config.get("seed"),
        workers=config.get("workers"),
        batch_size=config.get("batch_size"),
        steps=config.get("steps"),
        dilation=emulation.get("dilation"),
        compute=emulation.get("compute"),
        metric=target.get("metric"),
        target=target.get("value"),
        state=state,
        valid=summary.get("valid"),
        reasons=reasons,
        left_out=_left_out(state, summary.get("valid"), reasons, ending.get("error"))
        or ("" if _has_rows(path / "steps.csv") else "steps.csv holds no step"),
        ended=str(ending.get("ended") or ""),
        setting=hashlib.sha256(json.dumps(conditions, default=str).encode()).hexdigest()[:8],
        conditions=conditions,
    )


def _config(path: Path) -> dict[str, Any]:
    file = path / "config.yaml"
    if not file.exists():
        return {}
    config: Any = OmegaConf.to_container(OmegaConf.load(file))
    return config or {}


def _name(config: dict[str, Any], group: str) -> str | None:
    """Name of the option chosen in `group`: its `name`, else the class it builds."""
    chosen = config.get(group)
    if not isinstance(chosen, dict):
        return chosen
    return chosen.get("name") or str(chosen.get("_target_", "")).split(".")[-1].lower() or None


def _left_out(state: str, valid: bool | None, reasons: str, error: object) -> str:
    if state == "succeeded" and valid:
        return ""
    if state == "succeeded":
        state = "invalid" if valid is False else "not judged, it has no summary"
    detail = reasons if state == "invalid" else str(error or "")
    first_line = detail.strip().split("\n")[0]
    return f"{state}: {first_line}" if first_line else state


def _has_rows(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open() as file:
        return len([line for line in islice(file, 2) if line.endswith("\n")]) == 2


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots, sorted: {"profile": {"name": "x"}} -> {"profile.name": "x"}."""
    flat: dict[str, Any] = {}
    for key, value in sorted(config.items()):
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
