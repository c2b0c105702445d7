"""How long the runs of a paper take on this machine: predicted before, corrected as they end."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import plan
from harness.config.run import Run
from harness.config.settings import Settings
from harness.reproduce.perform import at_a_time, is_virtual
from harness.runner import previous_result
from harness.virtual.curve import Trainings

START_S = 5.0  # of a run over packets: processes, namespaces, probes, evaluations, the end
OF_A_MICRO_BATCH = ("model", "dataset", "batch_size", "precision")
TIMED_S = 0.0005  # of a rank's step that another run has trained
WHOLE = 1.5  # a virtual run over its forward and backward alone


@dataclass
class Estimate:
    """Real seconds of runs that are to be done; virtual ones are done `at_a_time`."""

    at_a_time: int = field(default_factory=at_a_time)
    _left: dict[Path, float] = field(default_factory=dict, init=False)
    _virtual: dict[Path, bool] = field(default_factory=dict, init=False)
    _steps: dict[str, float] = field(default_factory=dict, init=False)  # seconds of one worker's
    _trainings: Trainings = field(default_factory=Trainings, init=False)
    _plan: plan.Plan = field(default_factory=plan.Plan, init=False)
    _packets: dict[str, Run] = field(default_factory=dict, init=False)
    _last: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._took_s, self._expected_s = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}

    def add(self, settings: Settings) -> None:
        """A run that is to be done, unless it was; BadSetting where it cannot be predicted."""
        run_dir = settings.run_dir()
        if not previous_result.is_kept(run_dir, settings):
            run = settings.run()
            self._virtual[run_dir] = run.network.in_process
            self._left[run_dir] = self._real_s(settings, run)

    def begin(self) -> None:
        self._last = time.monotonic()

    def ended(self, settings: Settings) -> None:
        """A run ended now, which was all that went on since `begin` or the last call."""
        kind, now = is_virtual(settings), time.monotonic()
        self._took_s[kind] += now - self._last
        self._expected_s[kind] += self._left.pop(settings.run_dir(), 0.0)
        self._last = now

    def runs(self, virtual: bool) -> int:
        """Number of runs that are left in virtual time, or over packets."""
        return sum(self._virtual[place] == virtual for place in self._left)

    def over_packets(self) -> list[Run]:
        """Runs over packets that are to be done, one of those that differ in seeds alone."""
        return list(self._packets.values())

    def left_s(self, *kinds: bool) -> float:
        """Seconds left for virtual runs, real ones or both, scaled by past prediction errors."""
        return sum(
            left_s * self._slower(self._virtual[place])
            for place, left_s in self._left.items()
            if self._virtual[place] in (kinds or (True, False))
        )

    def _slower(self, virtual: bool) -> float:
        expected_s = self._expected_s[virtual]
        return self._took_s[virtual] / expected_s if expected_s else 1.0

    def _real_s(self, settings: Settings, run: Run) -> float:
        if not run.network.in_process:
            took_s = self._predicted(settings, run).real_s or 0.0
            self._packets.setdefault(plan.key_of(plan.deciding(settings)), run)
            return START_S + took_s
        if run.emulation.is_replay:
            return START_S / self.at_a_time
        if self._trainings.is_known(settings["results"], run):
            return TIMED_S * run.workers * run.steps / self.at_a_time
        computed = run.workers * run.accumulate * run.steps
        return WHOLE * computed * self._step_s(settings, run) / self.at_a_time

    def _predicted(self, settings: Settings, run: Run) -> plan.Prediction:
        """By published times, where a model has them, also of computation to be measured."""
        if run.emulation.is_measured and run.times:
            run = replace(run, emulation=replace(run.emulation, compute="paced"))
        return self._plan.add(settings, run)

    def _step_s(self, settings: Settings, run: Run) -> float:
        """Forward and backward of one micro-batch, measured here once for all that do the same."""
        key = plan.key_of(plan.deciding(settings), OF_A_MICRO_BATCH)
        if key not in self._steps:
            here = replace(run.emulation, compute="measured", dilation=1.0)
            found = plan.times_here(replace(run, accumulate=1, emulation=here))
            self._steps[key] = found.forward_s + found.backward_s
        return self._steps[key]
