"""The timing tables of COVAP, predicted."""

from pathlib import Path

from harness.fidelity.timing import Timing
from papers.covap.predictor import Covap
from papers.covap.timing_claims import claims

COMPARES = {"covap_table7": "speedup_vs_1gpu"}
TIMING = Timing("covap", "COVAP", Path(__file__).parent, Covap, claims, COMPARES)
