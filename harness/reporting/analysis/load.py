"""Reads run directories into DataFrames: one row per run, and the tables of a single run."""

import hashlib
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness.config import label, parts
from harness.config.settings import AUTO
from harness.records import printable, run_directory, status
from harness.records.printable import PrintableError
from harness.reporting.analysis import untrusted

PAIR = ["seed", "network_seed"]  # columns that two compared runs share
# Settings that must be equal for two runs to be compared; method and seeds may differ.
CONDITIONS = ["experiment", "workers", "steps", "batch_size", "target", "model"]
CONDITIONS += ["dataset", "optimizer", "workers_per_node", "profile", "network", "emulation"]
CONDITIONS += ["initial_weights", "resume_from", "device", "accumulate", "precision", "parallel"]
CONDITIONS += ["backend", "eval_every"]  # a target can only be met at an evaluation
ENDINGS = ("status.json", "summary.json")
NOT_KEPT = "not kept"  # path of a run of which only its row is kept
NOT_FINITE = "not finite"  # in the error of a run that a gradient or loss stopped
STANDS = {"dilation": "emulation.dilation", "compute": "emulation.compute"}  # config keys
STANDS |= {"metric": "target.metric", "target": "target.value"}
OF_A_MACHINE = {
    f"network.{key}" for key in ("machine", "interface", "ledger", "in_place_of", "fitted_on")
} | {"emulation.priority"}
OF_A_RESIDUAL = {"parallel.drain_period"}  # belongs to the method; dense has none
OF_DATA = ("dataset.seed", "model.original.dataset.seed")
OF_MOMENTUM = ("momentum", "nesterov")


class NoRuns(PrintableError, ValueError):
    """Raised if a folder holds no run, or none that counts."""


class RunRow(NamedTuple):
    """One row of `runs`; a field is None if the directory does not have it."""

    path: str
    run_id: str
    experiment: str
    method: str | None  # computed from the settings, whatever the directory calls it
    compressor: str | None
    controller: str | None
    density: float | None  # requested; None if the controller chooses
    error_feedback: bool | None
    overlap: str | None
    parallel: str | None
    world: str  # packets | virtual
    dense: bool  # sends every gradient entry
    model: str | None
    dataset: str | None
    profile: str | None
    seed: int | None
    network_seed: int | None  # in older runs that of the profile
    workers: int | None
    batch_size: int | None  # per worker
    steps: int | None
    dilation: float | None  # of the attempt that counts, if the runner chose it
    compute: str | None  # measured | paced | replay
    simulated: bool  # the network is simulated, no packets were sent
    metric: str | None  # of the target; the target itself may be null
    target: float | None
    state: str
    valid: bool | None  # None before the run was judged
    grade: str | None  # valid | bounded | invalid; None in older runs
    late_at_most_s: float | None  # emulated delay by other programs; None if unbounded
    late_at_most_share: float | None  # the same as a share of its time
    reasons: str  # why the run is not valid, one per line
    damaged: str  # damage to its files; "" if there is none
    left_out: str  # why figures and averages leave the run out; "" = it counts
    ended: str
    setting: str  # short hash of `conditions`: runs of one setting may be compared
    conditions: dict[str, Any]


def runs(folder: Path | str) -> pd.DataFrame:
    """Return a row for every run, also failed ones, of a run directory, experiment or results root.

    An unreadable folder is a run that is left out. Raise NoRuns if there is no run.
    """
    folder = Path(folder)
    paths = {
        file.parent
        for depth in ("", "*/", "*/*/")
        for name in ("status.json", "config.yaml")
        for file in folder.glob(depth + name)
    }
    inside = (path for depth in ("*", "*/*") for path in folder.glob(depth))
    paths |= {path for path in inside if path.is_dir() and not os.access(path, os.R_OK | os.X_OK)}
    # Hidden folders are Hydra's own .hydra, and files of machines other than the first.
    shown = [path for path in paths if not _is_hidden(path.relative_to(folder))]
    if not shown:
        raise NoRuns(f"no runs in {folder}: no folder there holds a status.json")
    return pd.DataFrame([_run(path) for path in sorted(shown)], columns=list(RunRow._fields))


def lost(runs: pd.DataFrame) -> pd.Series:
    """Return for each row of `runs` whether training failed by a number that is not finite."""
    return (runs.state == "failed") & runs.left_out.str.contains(NOT_FINITE, regex=False)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def steps(run: Path | str) -> pd.DataFrame:
    """Return steps.csv of the run directory `run`, a row per step and rank; empty if missing."""
    return _table(run, "steps.csv")


def evaluations(run: Path | str) -> pd.DataFrame:
    """Return evaluations.csv of the run directory `run`; empty if it is missing."""
    return _table(run, "evaluations.csv")


def links(run: Path | str) -> pd.DataFrame:
    """Return links.csv of the run directory `run`; empty if it is missing."""
    return _table(run, "links.csv")


def timeline(run: Path | str) -> pd.DataFrame:
    """Return timeline.csv of the run directory `run`; empty unless it ran in virtual time."""
    return _table(run, "timeline.csv")


def watched(run: Path | str) -> pd.DataFrame:
    """Return watched.csv of the run directory `run`; empty if no watch recorded it."""
    return _table(run, "watched.csv")


def histograms(run: Path | str) -> pd.DataFrame:
    """Return histograms.csv of the run directory `run`; empty if no watch recorded it."""
    return _table(run, "histograms.csv")


def _table(run: Path | str, name: str) -> pd.DataFrame:
    """Return a table of the run directory `run`. Raise LookupError if only its row is kept."""
    if str(run) == NOT_KEPT:
        raise LookupError(f"{name} of each run is not kept")
    return untrusted.table(Path(run), name)


def _run(path: Path) -> RunRow:
    """Return the row of a run directory; a directory that cannot be read is left out.

    A damaged or foreign file may raise any error. Its text is then the reason.
    """
    try:
        return _read(path)
    except Exception as error:
        reason = untrusted.reason(error)
        return _row(path, {}, "interrupted", {}, {})._replace(damaged=reason, left_out=reason)


def _read(path: Path) -> RunRow:
    """Return the row of a run directory; raise Damaged or any reader's error for a bad one."""
    if strange := untrusted.strange(path):
        raise untrusted.Damaged(strange)
    told: dict[str, Any] = {}
    damaged, state = "", status.state(path) or "interrupted"  # no status was written yet
    try:
        told = untrusted.config(path)
    except untrusted.Damaged as error:
        damaged = str(error)
    ending, summary = (run_directory.read_json(path / name) or {} for name in ENDINGS)
    row = _row(path, told, state, ending, summary)
    mistyped = untrusted.mistyped(row, STANDS)
    nothing: dict[str, Any] = dict.fromkeys(mistyped)
    row = row._replace(**nothing)
    damaged = damaged or untrusted.damage(path, state) or next(iter(mistyped.values()), "")
    left_out = damaged or _left_out(state, row.valid, row.reasons, row.left_out)
    if not left_out:
        untrusted.check_tables(path)
        left_out = "" if _has_rows(path / "steps.csv") else "steps.csv holds no step"
    return row._replace(damaged=damaged, left_out=left_out)


def _row(
    path: Path, told: dict[str, Any], state: str, ending: dict[str, Any], summary: dict[str, Any]
) -> RunRow:
    """Return a run's row from its files, unchecked; `left_out` is the error of status.json."""
    reasons = summary.get("reasons")
    conditions, network = _conditions(told), _section(told, "network")
    simulated = str(network.get("_target_")).startswith("harness.virtual.")
    emulation, target = _section(told, "emulation"), _section(told, "target")
    dilation = emulation.get("dilation")
    return RunRow(
        path=str(path),
        run_id=printable.line(path.resolve().name),
        experiment=told.get("experiment") or printable.line(path.resolve().parent.name),
        **_method(told),
        world="virtual" if simulated else "packets",
        model=_name(told, "model"),
        dataset=_dataset(told),
        profile=_profile(told.get("profile")),
        seed=told.get("seed"),
        network_seed=network_seed(told),
        workers=told.get("workers"),
        batch_size=told.get("batch_size"),
        steps=told.get("steps"),
        dilation=summary.get("dilation", None if dilation == AUTO else dilation),
        compute=emulation.get("compute"),
        simulated=simulated,
        metric=target.get("metric"),
        target=target.get("value"),
        state=state,
        valid=summary.get("valid"),
        grade=summary.get("grade"),
        late_at_most_s=summary.get("late_at_most_s"),
        late_at_most_share=summary.get("late_at_most_share"),
        reasons="\n".join(map(str, reasons)) if isinstance(reasons, list) else "",
        damaged="",
        left_out=str(ending.get("error") or ""),
        ended=str(ending.get("ended") or ""),
        setting=hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:8],
        conditions=conditions,
    )


def _method(told: dict[str, Any]) -> dict[str, Any]:
    """Return name and parts of a method; only the name if parts are missing or invalid."""
    nothing = dict.fromkeys(label.Columns._fields) | {"dense": False}
    if not (_section(told, "compressor") and _section(told, "controller")):
        return {"method": _name(told, "method")} | nothing
    try:
        return {"method": label.of(told)} | label.columns(told)._asdict()
    except (AttributeError, KeyError, TypeError, ValueError):  # settings that no run can have
        return {"method": _name(told, "method")} | nothing


def _section(told: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the mapping below `key`; {} if there is none."""
    found = told.get(key)
    return found if isinstance(found, dict) else {}


def config(run: Path | str) -> dict[str, Any]:
    """Return config.yaml of the run directory `run` as plain values; {} if missing or damaged."""
    try:
        return untrusted.config(Path(run))
    except untrusted.Damaged:  # `runs` reports it
        return {}


def environment(run: Path | str) -> dict[str, Any]:
    """Return environment.json of the run directory `run`; {} if it is missing."""
    return run_directory.read_json(Path(run) / "environment.json") or {}


def _name(config: dict[str, Any], group: str) -> str | None:
    """Return the `name` of the option chosen in `group`, else its class in lower case."""
    chosen = config.get(group)
    if not isinstance(chosen, dict):
        return chosen
    return chosen.get("name") or str(chosen.get("_target_", "")).split(".")[-1].lower() or None


def _dataset(config: dict[str, Any]) -> str | None:
    """Return the dataset as `dataset=` accepts it, or the class name if no choice builds it."""
    section = _section(config, "dataset")
    name, _ = parts.named("dataset", section)
    return _name(config, "dataset") if name == str(section.get("_target_")) else name


def _profile(chosen: Any) -> str | None:
    """Format a profile: `fluctuating`, `contended(lossy(static))`, `asymmetric(up slow)`."""
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


def _left_out(state: str, valid: bool | None, reasons: str, error: str) -> str:
    if state == "succeeded" and valid:
        return ""
    if state == "succeeded":
        state = "invalid" if valid is False else "not judged, it has no summary"
    detail = "; ".join(reasons.split("\n")) if state == "invalid" else error
    first_line = detail.strip().split("\n")[0]
    return f"{state}: {first_line}" if first_line else state


def _has_rows(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open() as file:
        return len([line for line in islice(file, 2) if line.endswith("\n")]) == 2


def _conditions(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that comparable runs share, as dotted keys and values.

    - Seeds that follow the run's own seeds are left out: those of profiles and of generated data.
    - Local steps belong to the method, so these runs compare with runs that exchange gradients.
    - Momentum counts the same in the optimizer and in a compressor that replaces it.
    """
    if label.local_of(config):
        config = config | {"parallel": {"_target_": label.DATA}}
    config = config | {"optimizer": _section(config, "optimizer") | _momentum_of_compressor(config)}
    flat = _flat({key: config[key] for key in CONDITIONS if key in config})
    follows = network_seed(config)
    return {
        key: value
        for key, value in flat.items()
        if key not in OF_A_MACHINE | OF_A_RESIDUAL
        and not (is_network_seed(key) and value == follows)
        and not (
            key in OF_DATA
            and value == config.get("seed")
            and parts.follows_seed("dataset", str(flat.get(key.replace(".seed", "._target_"))))
        )
    }


def _momentum_of_compressor(config: dict[str, Any]) -> dict[str, Any]:
    """Return the momentum settings of a compressor that replaces the optimizer's, else {}."""
    compressor = _section(config, "compressor")
    found = {key: compressor[key] for key in OF_MOMENTUM if key in compressor}
    # The class is imported, and torch with it, only if it may replace momentum.
    replaced = found and "optimizer.momentum" in parts.replaces(str(compressor.get("_target_")))
    return found if replaced else {}


def is_network_seed(key: str) -> bool:
    """Return True if the dotted `key` is a seed in the profile."""
    return key.startswith("profile.") and key.endswith(".seed")


def network_seed(config: dict[str, Any]) -> Any:
    """Return the seed of the network's randomness; in older runs that of the profile, else 0."""
    if "network_seed" in config:
        return config["network_seed"]
    profile = _flat({"profile": _section(config, "profile")})
    seeds = (value for key, value in profile.items() if is_network_seed(key))
    found = next(seeds, 0)
    return int(found) if isinstance(found, float) and found.is_integer() else found


def _flat(config: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Join keys by dots, sorted: {"profile": {"nodes": {0: "x"}}} -> {"profile.nodes.0": "x"}."""
    flat: dict[str, Any] = {}
    for key, value in sorted(config.items(), key=lambda item: str(item[0])):
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _plain(value)
    return flat


def _plain(value: Any) -> Any:
    """Normalise `value` so that equal values look equal: 200 is 200.0, dictionaries are sorted."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return _flat(value)
    if isinstance(value, (bool, int, float, str)) or value is None:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return str(value)
