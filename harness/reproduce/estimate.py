"""How long the runs of a paper take on this machine: predicted before, corrected as they end."""

import copy
import json
import os
import time
from dataclasses import dataclass, field

from harness import plan
from harness.reproduce.perform import MOST_AT_A_TIME, is_virtual
from harness.runner import run
from harness.settings import Settings

START_S = 5.0  # of a run over packets: processes, namespaces, probes, evaluations, the end
WHOLE = 1.5  # a virtual run over its forward and backward alone


@dataclass
class Estimate:
    """Real seconds of runs that are to be done; virtual ones are done several at a time."""

    _left: dict[str, float] = field(default_factory=dict, init=False)  # by run directory
    _virtual: dict[str, bool] = field(default_factory=dict, init=False)
    _steps: dict[str, float] = field(default_factory=dict, init=False)  # seconds of one worker's
    _plan: plan.Plan = field(default_factory=plan.Plan, init=False)
    _last: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._took_s, self._expected_s = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}

    def add(self, settings: Settings) -> None:
        """A run that is to be done, unless it was; BadSetting where it cannot be predicted."""
        if not run.is_done(settings):
            place = str(run.run_dir_of(settings))
            self._virtual[place] = is_virtual(settings)
            self._left[place] = self._real_s(settings)

    def begin(self) -> None:
        self._last = time.monotonic()

    def ended(self, settings: Settings) -> None:
        """A run ended now, which was all that went on since `begin` or the last call."""
        kind, now = is_virtual(settings), time.monotonic()
        self._took_s[kind] += now - self._last
        self._expected_s[kind] += self._left.pop(str(run.run_dir_of(settings)), 0.0)
        self._last = now

    def runs(self, virtual: bool) -> int:
        """How many are left."""
        return sum(self._virtual[place] == virtual for place in self._left)

    def left_s(self, *kinds: bool) -> float:
        """Of runs that are virtual, or not, or both; as much longer than predicted as before."""
        return sum(
            left_s * self._slower(self._virtual[place])
            for place, left_s in self._left.items()
            if self._virtual[place] in (kinds or (True, False))
        )

    def _slower(self, virtual: bool) -> float:
        expected_s = self._expected_s[virtual]
        return self._took_s[virtual] / expected_s if expected_s else 1.0

    def _real_s(self, settings: Settings) -> float:
        if not is_virtual(settings):
            return START_S + (self._plan.add(settings).real_s or 0.0)
        computed = settings["workers"] * settings["accumulate"] * plan.total_steps(settings)
        at_a_time = min(os.cpu_count() or 1, MOST_AT_A_TIME)
        return WHOLE * computed * self._step_s(settings) / at_a_time

    def _step_s(self, settings: Settings) -> float:
        """Forward and backward of one micro-batch, measured here once for all that do the same."""
        parts = [settings[part] for part in ("model", "dataset", "batch_size", "precision")]
        if (key := json.dumps(parts, sort_keys=True)) not in self._steps:
            config = copy.deepcopy(settings.config)
            config["accumulate"] = 1
            config["emulation"] |= {"compute": "measured", "dilation": 1.0}
            found = plan.times_here(Settings(config))
            self._steps[key] = found["forward_s"] + found["backward_s"]
        return self._steps[key]
