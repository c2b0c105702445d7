"""One line for each claim, with its verdicts over packets and in virtual time side by side."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.reporting.claims.base import Claim

OVER = {"packets": "over packets", "virtual": "in virtual time", "": "without runs"}


class Line(NamedTuple):
    """A claim at one scale. A verdict is "" if the claim has no runs on that kind of network."""

    id: str
    text: str
    packets: str
    virtual: str
    measured: str
    reason: str
    p_holm: str  # from t tests of log ratios, adjusted for all claims of the study
    by: str  # paper | ours | as ID, whose decision it repeats
    scale: str
    runs: int


def lines(judged: Sequence[Claim]) -> list[Line]:
    """Merge claims that differ in the network alone into lines: the paper's first, then ours."""
    groups: dict[tuple[str, str, str], list[Claim]] = {}
    for claim in judged:
        groups.setdefault((claim.id, claim.text, claim.scale), []).append(claim)
    return sorted(map(_line, groups.values()), key=lambda line: line.by == "ours")


def _line(claims: list[Claim]) -> Line:
    first, verdicts = claims[0], {claim.network: claim.verdict for claim in claims}
    return Line(
        id=first.id,
        text=first.text,
        packets=verdicts.get("packets", ""),
        virtual=verdicts.get("virtual", verdicts.get("", "")),
        measured=_joined((claim.network, claim.measured) for claim in claims),
        reason=_joined((claim.network, claim.reason) for claim in claims),
        p_holm=_joined((c.network, f"{c.p_holm:.2g}") for c in claims if c.p_holm == c.p_holm),
        by="ours" if first.ours else f"as {first.repeats}" if first.repeats else "paper",
        scale=first.scale,
        runs=sum(len(claim.runs) for claim in claims),
    )


def _joined(texts: Iterable[tuple[str, str]]) -> str:
    """Format (network, text) pairs as `packets: a; virtual: b`, or once if the texts are equal."""
    known = {network: text for network, text in texts if text}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), "")
    return "; ".join(f"{network}: {text}" for network, text in known.items())


class ClaimsSplit(NamedTuple):
    """Claims that have runs, and by id the number of claims that have none."""

    decided: list[Claim]
    without_runs: Counter[str]


def split(judged: Sequence[Claim]) -> ClaimsSplit:
    """Separate claims with runs from those without; if none has runs, return all as decided."""
    decided = [claim for claim in judged if claim.runs] or list(judged)
    keys = {(claim.id, claim.text) for claim in decided}
    others = {(claim.id, claim.text) for claim in judged} - keys
    return ClaimsSplit(decided, Counter(id for id, _ in sorted(others)))


def counted(judged: Sequence[Claim]) -> dict[str, int]:
    """Count the paper's own claims by verdict and network kind, without repeated decisions."""
    found = Counter(
        f"{claim.verdict} {OVER.get(claim.network, claim.network)}"
        for claim in judged
        if not claim.ours and not claim.repeats
    )
    return dict(sorted(found.items()))
