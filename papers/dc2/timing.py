"""The timing tables of DC2, predicted."""

from pathlib import Path

from harness.fidelity.timing import Timing
from papers.dc2.predictor import Dc2
from papers.dc2.timing_claims import claims

COMPARES: dict[str, str] = {}  # its numbers are bounds
TIMING = Timing("dc2", "DC2", Path(__file__).parent, Dc2, claims, COMPARES)
