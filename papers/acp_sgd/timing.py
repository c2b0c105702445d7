"""The timing tables of ACP-SGD, predicted."""

from pathlib import Path

from harness.fidelity.timing import Timing
from papers.acp_sgd.predictor import AcpSgd
from papers.acp_sgd.timing_claims import claims

COMPARES = {"acp_table3": "iteration_time_mean"}
TIMING = Timing("acpsgd", "ACP-SGD", Path(__file__).parent, AcpSgd, claims, COMPARES)
