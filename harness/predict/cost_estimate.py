"""Estimate what runs cost on this machine: minutes, and the time it adds to emulated steps.

`python -m harness`, `harness.advise` and `study reproduce` print the estimates before they start.
Ranks that share a few processors take turns at messages and compression, in real time. A larger
`emulation.dilation` makes their share of an emulated step smaller. The share is computed from
replays with the constants of `network=calibrated`. The shipped constants are another machine's;
`python -m harness.doctor --calibrate` fits those of this one.
"""

import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

from harness.clock import minutes_of
from harness.config import label, plain_yaml, search_path
from harness.config.network import CALIBRATED
from harness.config.run import Run
from harness.config.settings import Settings
from harness.predict import plan
from harness.runner import previous_result
from harness.virtual.curve import Trainings

START_S = 5.0  # overhead of a run over packets: processes, namespaces, probes, evaluations
OF_A_MICRO_BATCH = ("model", "dataset", "batch_size", "precision")
TIMED_S = 0.0005  # per rank and step, if another run did the training
WHOLE = 1.5  # ratio of a virtual run to its forward and backward alone
OF_COMPRESSION = ("device", "real_seconds", "cores")  # network settings that concern compression
IDEAL_DILATION = 100.0  # the milliseconds of a message no longer matter
STEPS = 60  # most steps that are compared
LITTLE = 0.05
RUN_BYTES = 1.5e9  # memory reserved per virtual run, which takes about a gigabyte


def is_virtual(settings: Settings) -> bool:
    """Return True if the run is in virtual time, so that it needs no machine to itself."""
    return bool(settings.build("network").in_process)


def at_a_time() -> int:
    """Return how many virtual runs fit on this machine side by side, by its cores and memory."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), int(memory_bytes / RUN_BYTES)))


@dataclass
class Estimate:
    """Estimate of the real seconds that a command's remaining runs take.

    `at_a_time` virtual runs go side by side. The times of ended runs correct the estimate.
    """

    at_a_time: int = field(default_factory=at_a_time)
    _left_s: dict[Path, float] = field(default_factory=dict, init=False)
    _virtual: dict[Path, bool] = field(default_factory=dict, init=False)
    _step_s: dict[str, float] = field(
        default_factory=dict, init=False
    )  # seconds per step of one worker
    _trainings: Trainings = field(default_factory=Trainings, init=False)
    _plan: plan.Plan = field(default_factory=plan.Plan, init=False)
    _packets: dict[str, Run] = field(default_factory=dict, init=False)
    _last: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._took_s, self._expected_s = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}

    def add(self, settings: Settings) -> None:
        """Add a run unless it was done before. Raise BadSetting if it cannot be predicted."""
        run_dir = settings.run_dir()
        if not previous_result.is_kept(run_dir, settings):
            run = settings.run()
            self._virtual[run_dir] = run.network.in_process
            self._left_s[run_dir] = self._real_s(settings, run)

    def begin(self) -> None:
        self._last = time.monotonic()

    def ended(self, settings: Settings) -> None:
        """Count a run that ends now and began at `begin` or at the last call."""
        kind, now = is_virtual(settings), time.monotonic()
        self._took_s[kind] += now - self._last
        self._expected_s[kind] += self._left_s.pop(settings.run_dir(), 0.0)
        self._last = now

    def runs(self, virtual: bool) -> int:
        """Return the number of runs left, in virtual time or over packets."""
        return sum(self._virtual[run_dir] == virtual for run_dir in self._left_s)

    def over_packets(self) -> list[Run]:
        """Return the runs over packets, but only one of those that differ in nothing but seeds."""
        return list(self._packets.values())

    def left_s(self, *kinds: bool) -> float:
        """Return the seconds left for virtual runs (True), runs over packets (False) or both."""
        total_s = 0.0
        for run_dir, left_s in self._left_s.items():
            if (kind := self._virtual[run_dir]) in (kinds or (True, False)):
                expected_s = self._expected_s[kind]
                total_s += left_s * (self._took_s[kind] / expected_s if expected_s else 1.0)
        return total_s

    def _real_s(self, settings: Settings, run: Run) -> float:
        values = plan.deciding(settings)
        if not run.network.in_process:
            self._packets.setdefault(plan.key_of(values), run)
            if run.emulation.is_measured and run.times:  # published times replace measured ones
                run = replace(run, emulation=replace(run.emulation, compute="paced"))
            return START_S + (self._plan.add(settings, run).real_s or 0.0)
        if run.emulation.is_replay:
            return START_S / self.at_a_time
        steps = run.workers * run.steps
        if self._trainings.is_known(settings["results"], run):
            return TIMED_S * steps / self.at_a_time
        key = plan.key_of(values, OF_A_MICRO_BATCH)
        if key not in self._step_s:
            here = replace(run.emulation, compute="measured", dilation=1.0)
            found = plan.times_here(replace(run, accumulate=1, emulation=here))
            self._step_s[key] = found.forward_s + found.backward_s
        return WHOLE * run.accumulate * steps * self._step_s[key] / self.at_a_time


class Announced(NamedTuple):
    """Line on a command's cost, its estimate, and a note on this machine's share ("" if small)."""

    said: str
    estimate: Estimate
    added: str


def announced(runs: list[Settings]) -> Announced:
    """Return the number of `runs`, their minutes, how to run fewer, and this machine's share."""
    estimate, unknown = Estimate(at_a_time=1), 0
    for settings in runs:
        try:
            estimate.add(settings)
        except Exception:  # the run may work even if its prediction fails
            unknown += 1
    todo = estimate.runs(True) + estimate.runs(False) + unknown
    done = f", {len(runs) - todo} of them done before" if todo < len(runs) else ""
    minutes = f", about {minutes_of(estimate.left_s())}" if todo > unknown else ""
    more = f" and {unknown} of unknown length" if unknown and minutes else ""
    first = runs[0]
    values = {
        "method": (label.preset_of(first.config), {str(each["method.name"]) for each in runs}),
        "seed": (first["seed"], {str(each["seed"]) for each in runs}),
    }
    differ = {key for key, (_, found) in values.items() if len(found) > 1} or values.keys()
    fewer = " ".join(f"{key}={values[key][0]}" for key in values if key in differ)
    try:
        added = host_overhead(estimate.over_packets())
    except Exception:  # the run may work even if this fails
        added = ""
    return Announced(f"{len(runs)} runs{done}{minutes}{more}; fewer: {fewer}", estimate, added)


def host_overhead(runs: Iterable[Run]) -> str:
    """Return a text on the share of a step that this machine adds, and a dilation that reduces it.

    Shares are by method. Return "" if the share is small in all runs.
    """
    most: dict[str, float] = {}
    dilation = 0.0
    for run in runs:
        if (share := added_by_machine(run)) is not None and share > LITTLE:
            most[run.label] = max(share, most.get(run.label, 0.0))
            dilation = max(dilation, run.emulation.dilation * share / LITTLE)
    if not most:
        return ""
    shares = ", ".join(f"{method} {share:.0%}" for method, share in most.items())
    unit = 10.0 ** (math.floor(math.log10(dilation)) - 1)  # two digits, rounded up
    return (
        f"By network={CALIBRATED} this machine itself adds to a step: {shares}. "
        f"About {LITTLE:.0%} with emulation.dilation={math.ceil(dilation / unit) * unit:g}."
    )


def added_by_machine(run: Run) -> float | None:
    """Return the share of a step over packets that this machine's messages and compression add.

    Return None in virtual time, and for measured computation, which is this machine's anyway.
    """
    if run.network.in_process or run.emulation.is_measured:
        return None
    steps = min(run.steps, STEPS)
    here_s, ideal_s = (
        plan.replay(replace(plan.stand_in(_as_here(run, dilation)), steps=steps))[0]
        for dilation in (run.emulation.dilation, IDEAL_DILATION)
    )
    return here_s / ideal_s - 1


def _as_here(run: Run, dilation: float) -> Run:
    """Return `run` in virtual time with this machine's constants, at another dilation."""
    network = plan.simulated(run.network, dilation)
    fitted = plain_yaml.from_file(search_path.choices("network")[CALIBRATED])
    known = {each.name: fitted[each.name] for each in fields(network) if each.name in fitted}
    if (network.device or {}).get("costs"):  # do not replace the device's costs
        known = {key: value for key, value in known.items() if key not in OF_COMPRESSION}
        known |= {key: known[key] / dilation for key in plan.REAL_SECONDS if key in known}
    network = replace(network, **known)
    return replace(run, network=network, emulation=replace(run.emulation, dilation=dilation))
