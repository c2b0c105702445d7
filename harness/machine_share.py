"""What this machine itself adds to the steps of a run over packets, beside network and computation.

Ranks that share a few processors take turns at messages and at compression, in real time. Emulated
time goes slower by `emulation.dilation`, so the larger that is, the less of a step they are. It is
foretold by replays in virtual time with the constants of this machine (`network=calibrated`); those
that the harness comes with are of another one, until `python -m harness.calibrate` has run here.
"""

import math
from collections.abc import Iterable
from dataclasses import fields, replace

from harness.config import plain_yaml, search_path
from harness.config.network import CALIBRATED
from harness.config.run import Run
from harness.plan import REAL_SECONDS, for_a_while, simulated, stand_in
from harness.virtual.crew import virtual

OF_COMPRESSION = ("device", "real_seconds", "cores")  # of a network, what compression takes
IDEAL_DILATION = 100.0  # at which milliseconds of a message are nothing
STEPS = 60  # that are held against each other
LITTLE = 0.05


def added_by_machine(run: Run) -> float | None:
    """Share of a step that messages and compression here add to it; of packets alone, else None.

    By the constants of `network=calibrated`, with those of a real second against those of one that
    takes so long that they are nothing. Computation that is measured is this machine's anyway.
    """
    if run.network.in_process or run.emulation.is_measured:
        return None
    dilations = (run.emulation.dilation, IDEAL_DILATION)
    here, ideal = (_first_s(_as_here(run, each)) for each in dilations)
    return here / ideal - 1


def said(runs: Iterable[Run]) -> str:
    """Say what this machine adds to steps of `runs`, and the dilation for little; "" if little.

    By method, of its runs the most.
    """
    most: dict[str, float] = {}
    dilation = 0.0
    for run in runs:
        if (share := added_by_machine(run)) is not None and share > LITTLE:
            most[run.label] = max(share, most.get(run.label, 0.0))
            dilation = max(dilation, run.emulation.dilation * share / LITTLE)
    if not most:
        return ""
    shares = ", ".join(f"{label} {share:.0%}" for label, share in most.items())
    return (
        f"By network={CALIBRATED} this machine itself adds to a step: {shares}. "
        f"About {LITTLE:.0%} with emulation.dilation={_rounded_up(dilation):g}."
    )


def _first_s(run: Run) -> float:
    """Time of the first steps, one after the other, so that both see about the same rates."""
    known = replace(stand_in(run), steps=min(run.steps, STEPS))
    with for_a_while(known) as (folder, costs):
        world = virtual(known)(folder, known, costs, None, lambda: None)
        return max(each.end_s for each in world.run())


def _as_here(run: Run, dilation: float) -> Run:
    """`run` in virtual time, as this machine would have it at another dilation."""
    network = simulated(run.network, dilation)
    fitted = plain_yaml.from_file(search_path.choices("network")[CALIBRATED])
    known = {each.name: fitted[each.name] for each in fields(network) if each.name in fitted}
    if (network.device or {}).get("costs"):  # compression is the device's, and charged as such
        known = {key: value for key, value in known.items() if key not in OF_COMPRESSION}
        known |= {key: known[key] / dilation for key in REAL_SECONDS if key in known}
    network = replace(network, **known)
    return replace(run, network=network, emulation=replace(run.emulation, dilation=dilation))


def _rounded_up(value: float) -> float:
    """To two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit
