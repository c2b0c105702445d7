"""NetSenseML's claims on throughput: tables 1 and 2, figures 7 and 8."""

from collections.abc import Sequence
from itertools import product

from harness.fidelity.cells import rate_mbit
from harness.fidelity.timing import TimingClaim
from harness.reporting.claims.base import listed
from harness.reporting.claims.origins import PublishedCell
from papers.netsense.groups import OVERHEAD, READINGS
from papers.netsense.over_time import FALLS, STABLE
from papers.netsense.predictor import TABLES, TOP_K, NetSenseMl

METHODS = ("NetSenseML", "AllReduce", TOP_K)
FALLING_MBIT = (2000, 200)  # figure 7, in steps of 200
IDS = {"ResNet18": "netsense_table1", "VGG16": "netsense_table2"}
TOP_K_WINS = ("200Mbps", *TABLES["VGG16"])  # over AllReduce, as published
READING = READINGS[OVERHEAD]  # the constant that testbed.yaml has
SHARED_MBIT, MOST_FLOWS = 800, 7  # figure 8: competing iperf3 flows, each of which takes a share


def claims(netsense: NetSenseMl) -> list[TimingClaim]:
    """Claims and the numbers that decide them."""
    return [*_tables(netsense), *_changing(netsense)]


def _speeds(netsense: NetSenseMl, model: str, network: str) -> dict[str, float]:
    return {method: netsense.throughput(model, network, method) for method in METHODS}


def _tables(netsense: NetSenseMl) -> list[TimingClaim]:
    """Tables 1 and 2, cell by cell."""
    found = {
        (model, network): _speeds(netsense, model, network)
        for model, networks in TABLES.items()
        for network in networks
    }
    claims = [_highest(*place, each) for place, each in found.items()]
    claims += [_top_k(*place, each) for place, each in found.items()]
    ours = [found["ResNet18", network]["NetSenseML"] for network in TABLES["ResNet18"]]
    slowly = TimingClaim(
        "netsense_table1",
        f"{READING}: NetSenseML's throughput grows slowly with the rate",
        ours == sorted(ours) and ours[-1] < 2 * ours[0],
        f"{ours[-1] / ours[0]:.2f} times with 4 times the rate",
        cells=_cells("ResNet18", TABLES["ResNet18"], ["NetSenseML"]),
    )
    return [*claims, slowly]


def _highest(model: str, network: str, speeds: dict[str, float]) -> TimingClaim:
    return TimingClaim(
        IDS[model],
        f"{_place(model, network)}: NetSenseML has the highest throughput",
        speeds["NetSenseML"] == max(speeds.values()),
        f"samples/s: {listed(speeds)}",
        cells=_cells(model, [network], METHODS),
    )


def _top_k(model: str, network: str, speeds: dict[str, float]) -> TimingClaim:
    """By volume TopK-0.1 loses everywhere: int64 positions make more than a dense ring of it."""
    wins = network in TOP_K_WINS
    more = speeds[TOP_K] > speeds["AllReduce"]
    return TimingClaim(
        IDS[model],
        f"{_place(model, network)}: TopK-0.1 {'beats' if wins else 'loses to'} AllReduce",
        more == wins,
        f"samples/s: {speeds[TOP_K]:.3g} against {speeds['AllReduce']:.3g}",
        "by volume it loses, with the int64 positions that its ResNet18 rows need",
        cells=_cells(model, [network], (TOP_K, "AllReduce")),
    )


def _place(model: str, network: str) -> str:
    return f"{model}, {rate_mbit(network):g} Mbit/s"


def _cells(
    model: str, networks: Sequence[str], methods: Sequence[str]
) -> list[PublishedCell] | None:
    """Return the published cells of table 1, or None: published.csv has none of table 2."""
    if model != "ResNet18":
        return None
    known = {"id": IDS[model], "model": model, "metric": "training_throughput"}
    pairs = product(networks, methods)
    return [known | {"network": network, "method": method} for network, method in pairs]


def _changing(netsense: NetSenseMl) -> list[TimingClaim]:
    """Figures 7 and 8, by a static rate at each end and a density at the floor."""
    high, low = (_speeds(netsense, "ResNet18", f"{mbit}Mbps") for mbit in FALLING_MBIT)
    alone = _speeds(netsense, "ResNet18", f"{SHARED_MBIT}Mbps")
    shared = _speeds(netsense, "ResNet18", f"{SHARED_MBIT / (1 + MOST_FLOWS):g}Mbps")
    falls = {method: high[method] / low[method] for method in METHODS}
    swings = {method: alone[method] / shared[method] for method in METHODS}
    told = f"times slower at the end: {listed(falls)}"
    return [
        TimingClaim(
            "netsense_fig7", f"degrading, {READING}: then it is stable",
            falls["NetSenseML"] < 1 / STABLE, told, f"stable is up to {1 / STABLE:g}",
        ),
        TimingClaim(
            "netsense_fig7", "degrading: TopK-0.1 and AllReduce fall",
            min(falls["AllReduce"], falls[TOP_K]) > 1 / FALLS, told, f"falling is {1 / FALLS:.3g}",
        ),
        TimingClaim(
            "netsense_fig8",
            f"contended, {READING}: NetSenseML's throughput is the highest and the steadiest",
            shared["NetSenseML"] == max(shared.values())
            and swings["NetSenseML"] == min(swings.values()),
            f"times slower with {MOST_FLOWS} flows on {SHARED_MBIT} Mbit/s: {listed(swings)}",
        ),
    ]  # fmt: skip
