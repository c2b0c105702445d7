"""Run directories -> DataFrames: one row per run, and the tables of one run."""

import hashlib
import io
import json
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pandas as pd
import yaml

from harness import records, status

# What must be equal for two runs to be compared; a comparison varies the rest, method and seed.
CONDITIONS = ["experiment", "workers", "steps", "epochs", "batch_size", "target", "model"]
CONDITIONS += ["dataset", "optimizer", "workers_per_node", "profile", "network", "emulation"]
CONDITIONS += ["initial_weights", "resume_from", "device", "accumulate", "precision", "parallel"]
PLAIN: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is there
OF_A_MACHINE = {
    f"network.{key}" for key in ("machine", "interface", "ledger", "in_place_of", "fitted_on")
}


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
    simulated: bool  # its network: no packets were sent
    metric: str | None  # of the target; the target itself may be null
    target: float | None
    state: str
    valid: bool | None  # None before the run was judged
    reasons: str  # of a run that is not valid, one a line
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
        # Hydra's own .hydra/config.yaml, and what machines other than the first keep
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
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


def timeline(run: Path | str) -> pd.DataFrame:
    """timeline.csv of the run directory `run`, of virtual time; empty when it has none."""
    return _table(Path(run), "timeline.csv")


def watched(run: Path | str) -> pd.DataFrame:
    """watched.csv of the run directory `run`; empty where nothing was watched."""
    return _table(Path(run), "watched.csv")


def histograms(run: Path | str) -> pd.DataFrame:
    """histograms.csv of the run directory `run`; empty where nothing was watched."""
    return _table(Path(run), "histograms.csv")


def _table(run: Path, name: str) -> pd.DataFrame:
    tables = records.TABLES | records.SIMULATED_TABLES | records.WATCH_TABLES
    types: dict[str, Any] = get_type_hints(tables[name])
    path = run / name
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # a torn last line is ignored
    if not whole:
        return pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in types.items()})
    found = pd.read_csv(io.StringIO(whole), usecols=lambda name: name in types, dtype=types)
    return found.reindex(columns=list(types))  # older runs have fewer columns


def _run(path: Path) -> Run:
    told = config(path)
    ending = records.read_json(path / "status.json") or {}
    summary = records.read_json(path / "summary.json") or {}
    state = status.state(path) or "interrupted"  # before it wrote its status
    reasons = list(map(str, summary.get("reasons") or []))
    conditions = _conditions(told)
    emulation = told.get("emulation") or {}
    target = told.get("target") or {}
    return Run(
        path=str(path),
        run_id=path.resolve().name,
        experiment=told.get("experiment") or path.resolve().parent.name,
        method=_name(told, "method"),
        model=_name(told, "model"),
        dataset=_name(told, "dataset"),
        profile=_profile(told.get("profile")),
        seed=told.get("seed"),
        workers=told.get("workers"),
        batch_size=told.get("batch_size"),
        steps=told.get("steps"),
        dilation=emulation.get("dilation"),
        compute=emulation.get("compute"),
        simulated=_simulated(told.get("network")),
        metric=target.get("metric"),
        target=target.get("value"),
        state=state,
        valid=summary.get("valid"),
        reasons="\n".join(reasons),
        left_out=_damaged(path, told)
        or _left_out(state, summary.get("valid"), "; ".join(reasons), ending.get("error"))
        or ("" if _has_rows(path / "steps.csv") else "steps.csv holds no step"),
        ended=str(ending.get("ended") or ""),
        setting=hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:8],
        conditions=conditions,
    )


def config(run: Path | str) -> dict[str, Any]:
    """config.yaml of the run directory `run` as plain values; empty where it cannot be read."""
    file = Path(run) / "config.yaml"
    if not file.exists():
        return {}
    try:
        found: Any = yaml.load(file.read_text(), PLAIN)
    except (OSError, ValueError, yaml.YAMLError):  # what cannot be read is told by _damaged
        return {}
    return found if isinstance(found, dict) else {}


def _damaged(path: Path, config: dict[str, Any]) -> str:
    """The first file that does not hold what it should; empty when all do."""
    if (path / "config.yaml").exists() and "experiment" not in config:
        return "config.yaml is damaged"
    for name in ("status.json", "summary.json"):
        if (path / name).exists() and records.read_json(path / name) is None:
            return f"{name} is damaged"
    return ""


def _name(config: dict[str, Any], group: str) -> str | None:
    """Name of the option chosen in `group`: its `name`, else the class it builds."""
    chosen = config.get(group)
    if not isinstance(chosen, dict):
        return chosen
    return chosen.get("name") or str(chosen.get("_target_", "")).split(".")[-1].lower() or None


def _simulated(network: Any) -> bool:
    return str((network or {}).get("_target_")).startswith("harness.simulate.")


def _profile(chosen: Any) -> str | None:
    """A profile as it is said: `fluctuating`, `contended(lossy(static))`, `asymmetric(up slow)`."""
    if not isinstance(chosen, dict):
        return chosen
    name = chosen.get("name") or (str(chosen.get("_target_", "")).split(".") * 2)[-2]
    parts = []
    for key, value in sorted(chosen.items(), key=lambda item: str(item[0])):
        if isinstance(value, dict) and "_target_" in value:
            parts.append((key, _profile(value)))
        elif isinstance(value, dict):  # one for each node
            parts += [(f"{key} {at}", _profile(value[at])) for at in sorted(value, key=str)]
    said = [f"{part}" if key == "of" else f"{key} {part}" for key, part in parts]
    return (f"{name}({', '.join(said)})" if said else name) or None


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


def _conditions(config: dict[str, Any]) -> dict[str, Any]:
    """What has to be equal, flat; each value as the network and the training see it."""
    flat = _flat({key: config[key] for key in CONDITIONS if key in config})
    return {key: value for key, value in flat.items() if key not in OF_A_MACHINE}


def _flat(config: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Keys joined by dots, sorted: {"profile": {"nodes": {0: "x"}}} -> {"profile.nodes.0": "x"}."""
    flat: dict[str, Any] = {}
    for key, value in sorted(config.items(), key=lambda item: str(item[0])):
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _plain(value)
    return flat


def _plain(value: Any) -> Any:
    """`value` such that equal ones are written equal: 200 is 200.0, dictionaries are sorted."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return _flat(value)
    if isinstance(value, (bool, int, float, str)) or value is None:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return str(value)
