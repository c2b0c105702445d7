"""One line a claim: what packets, virtual time and predictions say of it, beside each other."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.reporting.claims.base import PREDICTED, Claim

OVER = {"packets": "over packets", "virtual": "in virtual time", PREDICTED: "by prediction"}
OVER |= {"": "without runs"}


class Line(NamedTuple):
    """A claim; a network kind that has no runs for it is empty."""

    id: str
    text: str
    packets: str  # verdicts
    virtual: str
    predicted: str  # by replays of the published sizes
    measured: str
    reason: str
    p_holm: str  # of flipped signs, for all claims of the study together
    by: str  # paper | ours | as ID, whose decision it repeats
    scale: str
    runs: int


def lines(judged: Sequence[Claim]) -> list[Line]:
    """In the order of `judged`; those of the paper first, then the project's own."""
    replays = {(each.id, each.text): each for each in judged if each.network == PREDICTED}
    groups: dict[tuple[str, str, str], list[Claim]] = {}
    for claim in judged:
        if claim.network != PREDICTED:
            groups.setdefault((claim.id, claim.text, claim.scale), []).append(claim)
    for (id, text, _), claims in groups.items():
        claims += [replays[id, text]] if (id, text) in replays else []
    alone = replays.keys() - {key[:2] for key in groups}
    groups |= {(*key, ""): [claim] for key, claim in replays.items() if key in alone}
    found = [_line(claims) for claims in groups.values()]
    return sorted(found, key=lambda line: line.by == "ours")


def _line(claims: list[Claim]) -> Line:
    first, verdicts = claims[0], {claim.network: claim.verdict for claim in claims}
    alone = verdicts.get("", "")
    return Line(
        id=first.id,
        text=first.text,
        packets=verdicts.get("packets", ""),
        virtual=verdicts.get("virtual", alone),
        predicted=verdicts.get(PREDICTED, ""),
        measured=_joined((claim.network, claim.measured) for claim in claims),
        reason=_joined((claim.network, claim.reason) for claim in claims),
        p_holm=_joined((c.network, f"{c.p_holm:.2g}") for c in claims if c.p_holm == c.p_holm),
        by="ours" if first.ours else f"as {first.repeats}" if first.repeats else "paper",
        scale=first.scale,
        runs=sum(len(claim.runs) for claim in claims),
    )


def _joined(told: Iterable[tuple[str, str]]) -> str:
    """`packets: a; virtual: b`, or what both say."""
    known = {network: text for network, text in told if text}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), "")
    return "; ".join(f"{network}: {text}" for network, text in known.items())


class ClaimsSplit(NamedTuple):
    """Claims that have runs or a prediction, and how many others each id has."""

    decided: list[Claim]
    without_runs: Counter[str]


def split(judged: Sequence[Claim]) -> ClaimsSplit:
    """Part claims with runs or a prediction from the rest; if none has, all are shown."""
    decided = [each for each in judged if each.runs or each.network == PREDICTED] or list(judged)
    told = {(each.id, each.text) for each in decided}
    others = {(each.id, each.text) for each in judged} - told
    return ClaimsSplit(decided, Counter(id for id, _ in sorted(others)))


def counted(judged: Sequence[Claim]) -> dict[str, int]:
    """Claims of the paper alone, each decision once, by verdict and network kind."""
    found = Counter(
        f"{claim.verdict} {OVER.get(claim.network, claim.network)}"
        for claim in judged
        if not claim.ours and not claim.repeats
    )
    return dict(sorted(found.items()))
