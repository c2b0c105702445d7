"""Why the runs of a comparison may be believed, as a table: what each run's summary proves."""

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness import records
from harness.analysis import load
from harness.runner import passage

NAN = float("nan")


class Proof(NamedTuple):
    """Of one run, the worst of its links; nan where the run has no such number."""

    method: str
    seed: int
    run_id: str
    probe: float  # payload measured before step 0 over that expected, furthest from 1
    headroom: float  # what the machine carries with open shapers, over what links may ask for
    idle_share: float  # of the processors
    late_ms: float  # real, of 99 % of the changes of the plan
    over_rate: float  # bytes carried over what the shaper's rates add up to
    drops: float  # packets, of all links
    retransmits: float  # of competing flows
    bytes_low: float  # frames through an uplink over what its node sent, lowest and highest
    bytes_high: float


def of_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """One `Proof` for each row of `load.runs`."""
    rows: Any = runs.itertuples()
    return pd.DataFrame([of_run(row) for row in rows], columns=list(Proof._fields))


def of_run(run: Any) -> Proof:
    """`run` is a row of `load.runs`."""
    proof = (records.read_json(Path(run.path) / "summary.json") or {}).get("proof") or {}
    audit, ceiling = proof.get("audit") or {}, proof.get("ceiling") or {}
    flows = proof.get("flows") or []
    probes = [each["measured_mbit"] / each["expected_mbit"] for each in proof.get("probe") or []]
    bytes_ratios = _bytes_ratios(proof, run.conditions.get("workers_per_node", 1))
    return Proof(
        method=run.method,
        seed=run.seed,
        run_id=run.run_id,
        probe=max(probes, key=lambda ratio: abs(ratio - 1), default=NAN),
        headroom=_over(ceiling.get("carried_mbit"), ceiling.get("needed_mbit")),
        idle_share=_number(audit.get("cpu_idle_share")),
        late_ms=_number(audit.get("late_ms_p99")),
        over_rate=_number(audit.get("carried_over_allowed")),
        drops=_drops(load.links(run.path)),
        retransmits=float(sum(flow["retransmits"] for flow in flows)),
        bytes_low=min(bytes_ratios, default=NAN),
        bytes_high=max(bytes_ratios, default=NAN),
    )


def by_method(proofs: pd.DataFrame, methods: list[str]) -> pd.DataFrame:
    """The worst of each method's runs, in the order of `methods`."""
    worst = {"headroom": "min", "idle_share": "min", "late_ms": "max", "over_rate": "max"}
    worst |= {"drops": "max", "retransmits": "max", "bytes_low": "min", "bytes_high": "max"}
    groups = proofs.groupby("method", sort=False)
    probe = groups.probe.agg(lambda ratios: max(ratios, key=lambda ratio: abs(ratio - 1)))
    return groups.agg(worst).assign(probe=probe, runs=groups.size()).loc[methods].reset_index()


def _bytes_ratios(proof: dict[str, Any], sharing: float) -> list[float]:
    """Of every uplink: what passed it over what was to: by workers in a ring, and competing."""
    passed, sent = proof.get("passed_bytes") or {}, proof.get("sent_bytes_by_node") or {}
    competing = passage.competing_bytes(proof.get("flows") or [])
    totals = {f"up{n}": count / sharing + competing[f"up{n}"].sent for n, count in sent.items()}
    return [passed[link] / total for link, total in totals.items() if total and link in passed]


def _drops(links: pd.DataFrame) -> float:
    if links.empty:
        return NAN
    drops = links.groupby("link").drops
    return float((drops.last() - drops.first()).sum())


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)


def _over(value: float | None, of: float | None) -> float:
    return float(value) / of if value is not None and of else NAN
