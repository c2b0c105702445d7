"""The claims of all papers, each held against its own testbed."""

from collections.abc import Iterable

from harness.claims.base import Claim
from harness.fidelity.acpsgd import AcpSgd
from harness.fidelity.claims import acpsgd, covap, dc2, netsenseml
from harness.fidelity.covap import Covap
from harness.fidelity.dc2 import Dc2
from harness.fidelity.netsenseml import NetSenseMl
from harness.fidelity.testbed import load


def claims(papers: Iterable[str]) -> list[Claim]:
    """Of these papers, in their order."""
    made = {
        "covap": lambda: covap.claims(Covap(load("covap_v100"), ())),
        "acpsgd": lambda: acpsgd.claims(AcpSgd(load("acp_rtx2080ti"), ())),
        "netsenseml": lambda: netsenseml.claims(NetSenseMl(load("netsenseml_a40"), ())),
        "dc2": lambda: dc2.claims(Dc2(load("dc2"), ())),
    }
    return [claim for paper in papers for claim in made[paper]()]
