"""Table of the evidence in each run's summary that its emulation was correct."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd

from controllers.base import Column
from harness.records import run_directory
from harness.records.flows import competing_bytes
from harness.reporting.analysis import load
from harness.reporting.analysis.metrics import OF_METHOD

NAN = float("nan")


_told = partial(Column, shown=True, digits=4)


class Proof(NamedTuple):
    """Evidence of one run, from the worst of its links; NaN if the run lacks the number."""

    method: str
    seed: int
    network_seed: int
    run_id: str
    probe: Annotated[float, _told("payload measured before step 0", "probe / expected")]
    headroom: Annotated[
        float, _told("what the machine carries with open shapers", "unshaped / needed")
    ]
    idle_share: Annotated[float, _told("of the processors", "idle (%)", percent=True)]
    others_share: Annotated[
        float, _told("of the processors, by what is not the run's", "others (%)", percent=True)
    ]
    waited_share: Annotated[
        float,
        _told(
            "for a processor, of the time that ranks wanted one",
            "waited (%)",
            percent=True,
            wide=True,
        ),
    ]
    late_share: Annotated[
        float, _told("of the time, by other programs at most", "late at most (%)", percent=True)
    ]
    pressure: Annotated[
        float,
        _told("share of time some process waited for one", "pressure (%)", percent=True, wide=True),
    ]
    pauses: Annotated[float, _told("of ranks that stood still", "pauses", wide=True)]
    changed_outside: Annotated[
        float, _told("changes of links that were not ours", "read-back", wide=True)
    ]
    delivered: Annotated[float, _told("of the plan, while ranks communicated", "delivered of plan")]
    delivered_worst: Annotated[
        float, _told("likewise, in the worst second of that", "worst second", wide=True)
    ]
    late_ms: Annotated[float, _told("real; 99 % of changes came sooner", "plan late (ms)")]
    over_rate: Annotated[
        float, _told("bytes over what the shaper's rates add up to", "carried / allowed", wide=True)
    ]
    drops: Annotated[float, _told("packets, of all links", "drops")]
    retransmits: Annotated[float, _told("of competing flows", "retransmits", wide=True)]
    bytes_low: Annotated[
        float, _told("frames through an uplink over what its node sent", "bytes, least")
    ]
    bytes_high: Annotated[float, _told("likewise, of the link with most", "bytes, most")]


def of_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a `Proof` row for each row of `load.runs`, with the parts of its method."""
    rows: Any = runs.itertuples()
    proofs = [of_run(row) for row in rows]
    found = pd.DataFrame(proofs, columns=list(Proof._fields), index=runs.index)
    return found.join(runs[OF_METHOD]).reset_index(drop=True)


def of_run(run: Any) -> Proof:
    """Return the `Proof` of `run`, a row of `load.runs`, from its summary.json and links.csv."""
    summary = run_directory.read_json(Path(run.path) / "summary.json") or {}
    proof = summary.get("proof") or {}
    audit, ceiling = proof.get("audit") or {}, proof.get("ceiling") or {}
    flows, delivery = proof.get("flows") or [], proof.get("delivery") or {}
    probes = [each["measured_mbit"] / each["expected_mbit"] for each in proof.get("probe") or []]
    sharing = proof.get("sharing") or run.conditions.get("workers_per_node", 1)
    bytes_ratios = _bytes_ratios(proof, sharing)
    return Proof(
        method=run.method,
        seed=run.seed,
        network_seed=run.network_seed,
        run_id=run.run_id,
        probe=max(probes, key=lambda ratio: abs(ratio - 1), default=NAN),
        headroom=_over(ceiling.get("carried_mbit"), ceiling.get("needed_mbit")),
        idle_share=_number(audit.get("cpu_idle_share")),
        others_share=_number(audit.get("cpu_others_share")),
        waited_share=_number(audit.get("cpu_waited_share")),
        late_share=_number(summary.get("late_at_most_share")),
        pressure=_number(audit.get("cpu_pressure")),
        pauses=_number(proof.get("pauses")),
        changed_outside=_number(audit.get("changed_outside")),
        delivered=_number(delivery.get("delivered")),
        delivered_worst=_number(delivery.get("delivered_worst")),
        late_ms=_number(audit.get("late_ms_p99")),
        over_rate=_number(audit.get("carried_over_allowed")),
        drops=_drops(load.links(run.path)),
        retransmits=float(sum(flow["retransmits"] for flow in flows)),
        bytes_low=min(bytes_ratios, default=NAN),
        bytes_high=max(bytes_ratios, default=NAN),
    )


def by_method(proofs: pd.DataFrame, methods: list[str]) -> pd.DataFrame:
    """Return the worst value of each column over a method's runs, in the order of `methods`."""
    worst = {"headroom": "min", "idle_share": "min", "late_ms": "max", "over_rate": "max"}
    worst |= {"drops": "max", "retransmits": "max", "bytes_low": "min", "bytes_high": "max"}
    worst |= {"delivered": "min", "delivered_worst": "min", "pressure": "max", "pauses": "max"}
    worst |= {"changed_outside": "max", "others_share": "max", "waited_share": "max"}
    worst |= {"late_share": "max"}
    groups = proofs.groupby("method", sort=False)
    probe = groups.probe.agg(lambda ratios: max(ratios, key=lambda ratio: abs(ratio - 1)))
    return groups.agg(worst).assign(probe=probe, runs=groups.size()).loc[methods].reset_index()


def _bytes_ratios(proof: dict[str, Any], sharing: float) -> list[float]:
    """Return by uplink the bytes carried over the bytes sent by workers and competing flows."""
    passed, sent = proof.get("passed_bytes") or {}, proof.get("sent_bytes_by_node") or {}
    competing = competing_bytes(proof.get("flows") or [])
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
