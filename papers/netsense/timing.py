"""The timing tables of NetSenseML, predicted."""

from pathlib import Path

from harness.fidelity.timing import Timing
from papers.netsense.predictor import NetSenseMl
from papers.netsense.timing_claims import claims

COMPARES = {"netsense_table1": "training_throughput", "netsense_table2": "training_throughput"}
TIMING = Timing("netsenseml", "NetSenseML", Path(__file__).parent, NetSenseMl, claims, COMPARES)
