"""NetSenseML's claims (Wang et al., 2025), in the order of its figures and tables."""

from harness.claims.base import Found, Paper, Runs, listed

PAPER = Paper("netsenseml", workers=8)
METHODS = ("netsense", "allreduce", "topk_0.1_int64")
RATES_MBIT = (200.0, 500.0, 800.0)


@PAPER.claim("netsense_table1", "NetSenseML has the highest throughput at 200, 500 and 800 Mbit/s")
def highest(runs: Runs) -> Found:
    """Of the three methods of the paper."""
    found = {
        rate: runs.of("netsense_resnet18_static", profile__of__rate_mbit=rate).mean(
            "throughput", *METHODS
        )
        for rate in RATES_MBIT
    }
    measured = "; ".join(f"{rate:g}: {listed(each)}" for rate, each in found.items())
    holds = all(each["netsense"] == max(each.values()) for each in found.values())
    return Found(holds, f"samples/s at Mbit/s: {measured}")
