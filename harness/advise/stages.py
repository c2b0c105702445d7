"""Stages of advice: plan, race, finalists over packets. Each announces its cost and its result."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.advise import race
from harness.advise.compositions import Contender, Question
from harness.clock import minutes_of
from harness.config.settings import BadSetting, Settings
from harness.predict.cost_estimate import Estimate, announced
from harness.predict.plan import Plan
from harness.reporting.analysis import load, metrics
from harness.reproduce.perform import perform
from harness.runner.run import Outcome, failure_report

AT_A_TIME = 2 * (os.cpu_count() or 1)  # runs between decisions on who can still be first

Say = Callable[[str], None]


class Planned(NamedTuple):
    """A composition that could win, and its predicted times."""

    composition: Contender
    step_s: float
    sent_bytes: float


class Plans(NamedTuple):
    """The short list without dense, the soonest step first, and dense."""

    dense: Planned
    listed: list[Planned]
    out: dict[str, str]  # by method, why it is not on the list
    every: list[Contender]  # that fits, dense apart


def planned(question: Question, say: Say) -> Plans:
    """Predict a step of every composition, and keep those that could be faster than dense.

    Return the plans, and why others were left out. `say` gets lines on the progress.
    """
    plan, began = Plan(), time.monotonic()
    dense = _planned(plan, question.dense())
    took_s = time.monotonic() - began
    found = question.compositions()
    fitting = {name: each for name, each in found.items() if isinstance(each, Contender)}
    out = {name: each for name, each in found.items() if isinstance(each, str)}
    cost = minutes_of(took_s * len(fitting))
    say(f"1. plan: {len(fitting)} compositions and dense, about {cost}")
    listed: list[Planned] = []
    for name, each in fitting.items():
        try:
            one = _planned(plan, each)
        except BadSetting as error:
            out[name] = str(error)
            continue
        if same := _same(one, listed):
            out[name] = f"all it sends and takes is as {same} does"
        elif race.bound_s(one.step_s, dense.step_s, 1.0) > 1:
            out[name] = f"a step takes {one.step_s / dense.step_s:.2f} times dense's"
        else:
            listed.append(one)
    listed.sort(key=lambda one: one.step_s)
    _tell_plans(say, dense, listed, out)
    return Plans(dense, listed, out, list(fitting.values()))


def _planned(plan: Plan, each: Contender) -> Planned:
    found = plan.add(each.settings, each.settings.run())
    return Planned(each, found.step_s, found.sent_bytes)


def _same(one: Planned, listed: list[Planned]) -> str:
    """Return the name of a listed composition equal to `one` but for its density, or ""."""
    preset = one.composition.overrides[0]
    alike = (each for each in listed if each.composition.overrides[0] == preset)
    return next((each.composition.label for each in alike if each[1:] == one[1:]), "")


def _tell_plans(say: Say, dense: Planned, listed: list[Planned], out: dict[str, str]) -> None:
    say(f"   a step of {dense.composition.label} takes {dense.step_s:.3g} s; on the short list:")
    for one in listed:
        say(f"   {one.composition.label}: {one.step_s:.3g} s")
    for name, why in out.items():
        say(f"   not {name}: {why}")


@dataclass
class Race:
    """Runs in virtual time, pair by pair. `times` covers all seeds so far, inf for a miss."""

    question: Question
    say: Say
    runs: dict[str, Contender] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)

    def run(self, entered: Sequence[Contender], seed: int) -> None:
        """Run one more pair of each method."""
        settings = [self.question.settings(each.overrides, seed) for each in entered]
        for each, outcome in zip(entered, perform(settings, self._failed), strict=True):
            self.runs[each.label] = each
            self.times.setdefault(each.label, []).append(time_to_target_s(outcome))

    def _failed(self, settings: Settings, outcome: Outcome) -> None:
        if outcome.state != "succeeded":
            self.say(f"   {settings['method.name']}:\n{failure_report(outcome)}")

    def first_pair(self, plans: Plans) -> None:
        """Run seed 0, the soonest step first. Skip methods whose plan already rules them out."""
        waiting = [plans.dense, *plans.listed]
        while waiting:
            self.run([each.composition for each in waiting[:AT_A_TIME]], 0)
            waiting = self._possible(waiting[AT_A_TIME:], plans.dense)

    def _possible(self, waiting: list[Planned], dense: Planned) -> list[Planned]:
        """Keep the methods that may beat the best so far, if dense's steps bound theirs."""
        best_s = min(each[0] for each in self.times.values())
        dense_s = self.times[dense.composition.label][0]
        kept = []
        for each in waiting:
            least_s = race.bound_s(each.step_s, dense.step_s, dense_s)
            if math.isfinite(dense_s) and least_s > best_s:
                self.out[each.composition.label] = f"not before {least_s:.3g} s by its plan"
            else:
                kept.append(each)
        return kept

    def drop(self, baseline: str) -> None:
        """Drop methods that are behind. Dense stays, since the others are compared with it."""
        for name, why in race.dropped(self.going).items():
            if name != baseline:
                self.out[name] = why
                self.say(f"   out after {len(self.times[name])} pairs: {name}, {why}")

    @property
    def going(self) -> dict[str, list[float]]:
        return {name: each for name, each in self.times.items() if name not in self.out}


def raced(question: Question, plans: Plans, pairs: int, say: Say) -> Race:
    """Race the short list over `pairs` seeds."""
    dense = plans.dense.composition
    entered = [dense, *(each.composition for each in plans.listed)]
    cost = at_most(question, entered, range(pairs))
    say(f"2. race in virtual time: {len(entered)} methods, seeds 0 to {pairs - 1}, at most {cost}")
    say(f"   out: who misses the target, who takes {race.FAR_BEHIND:g} times the leader's time,")
    say(f"   after {race.TESTED_PAIRS} pairs who is behind with {race.DROPPED_AT:.0%} confidence")
    found = Race(question, say)
    found.first_pair(plans)
    found.drop(dense.label)
    for seed in range(1, pairs):
        if race.leader(found.going) is None:
            break  # no method has a time in every pair
        found.run([found.runs[name] for name in found.going], seed)
        found.drop(dense.label)
    return found


def at_most(question: Question, entered: Sequence[Contender], seeds: range) -> str:
    """Estimate the minutes that runs in virtual time take here if each goes to its last step."""
    estimate = Estimate()
    for each in entered:
        for seed in seeds:
            estimate.add(question.settings(each.overrides, seed))
    return minutes_of(estimate.left_s())


def time_to_target_s(outcome: Outcome) -> float:
    """Return emulated seconds, or inf if a run failed, missed the target or diverged."""
    if outcome.state != "succeeded":
        return math.inf
    run: Any = next(load.runs(outcome.run_dir).itertuples())
    if run.left_out:
        return math.inf
    steps, tests = load.steps(run.path), load.evaluations(run.path)
    found = metrics.measure(run, steps, tests)
    met = found.reached and not found.diverged
    return found.time_to_target_s if met else math.inf


def over_packets(question: Question, finalists: Sequence[Contender], say: Say) -> dict[str, float]:
    """Return seconds to the target of seed 0 over packets, by method. Empty without packets."""
    if question.packets is None:
        say(f"3. finalists over packets: skipped, as {question.why_not}")
        return {}
    runs = [question.settings(each.overrides, 0, over_packets=True) for each in finalists]
    say(f"3. finalists over packets, seed 0: {announced(runs).said.partition(';')[0]}")
    outcomes = perform(runs, lambda settings, outcome: None)
    for outcome in outcomes:
        if outcome.state != "succeeded":
            say(f"   {failure_report(outcome)}")
    return {
        each.label: time_to_target_s(one) for each, one in zip(finalists, outcomes, strict=True)
    }
