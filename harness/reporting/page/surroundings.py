"""What the runs of an experiment depended on besides settings: code, versions and machine."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.records import environment, run_directory
from harness.records.run_directory import CURVE
from harness.workloads import form

GIB = 2**30
DIGITS = 12  # digits shown of a digest
OF_NETWORK = ("congestion_control", "offload", "mtu_bytes", "queue_ms")


class Fact(NamedTuple):
    """A property of the runs with its values; several values state how many runs had each."""

    name: str
    values: list[str]


def facts(paths: Iterable[str]) -> list[Fact]:
    """Collect facts from environment.json in the run directories `paths`."""
    found: dict[str, Counter[str]] = {}
    runs = 0
    for path in paths:
        runs += 1
        for name, value in _of_run(run_directory.read_json(Path(path) / "environment.json") or {}):
            found.setdefault(name, Counter())[value] += 1
    return [Fact(name, _spoken(values, runs)) for name, values in found.items()]


def forms(paths: Iterable[str]) -> list[str]:
    """Return lines that compare the buckets of trained models with those they stand in for."""
    told = (run_directory.read_json(Path(path) / "environment.json") or {} for path in paths)
    return [line for line in dict.fromkeys(form.said(form.read(each)) for each in told) if line]


def elsewhere(paths: Sequence[str]) -> int:
    """Count the runs that were not recorded with this commit on this machine."""
    here = environment.origin()
    found = [run_directory.read_json(Path(path) / "environment.json") or {} for path in paths]
    return sum({name: told.get(name) for name in here} != here for told in found)


def _spoken(values: Counter[str], runs: int) -> list[str]:
    if set(values.values()) == {runs}:
        return list(values)
    return [f"{value} ({count} of {runs} runs)" for value, count in sorted(values.items())]


def _of_run(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    git = told.get("git") or {}
    if git:
        dirty = "with changes that were not committed" if git.get("dirty") else "nothing changed"
        if git.get("dirty") is None:
            dirty = "whether anything was changed is not known, as there was no git"
        yield "commit", f"{git.get('commit')}, {dirty}"
    for name in ("kernel", "cpu", "cores"):
        if told.get(name):
            yield name, str(told[name])
    if told.get("memory_bytes"):
        yield "memory", f"{told['memory_bytes'] / GIB:.1f} GiB"
    if told.get("kernels"):
        yield "compression kernels", str(told["kernels"])
    if "root" in told:
        yield "privileges", "root" if told["root"] else "an ordinary user's namespaces"
    for name, version in sorted((told.get("versions") or {}).items()):
        yield name, str(version)
    if told.get("dilation") is not None:
        yield "dilation", f"{told['dilation']:g} real seconds for an emulated one"
    if told.get("seed") is not None:
        yield "seed", str(told["seed"])
    if isinstance(curve := told.get("curve"), dict):
        short = str(curve.get("sha256"))[:DIGITS]
        yield "timed by the training of run", f"{curve.get('run')}, {CURVE} {short}"
    network = told.get("network") or {}
    for name in OF_NETWORK:
        if network.get(name) is not None:
            yield f"network.{name}", str(network[name])
