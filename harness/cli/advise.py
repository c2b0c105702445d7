"""Command `advise`: find the compressor and controller that reach a target soonest.

advise target.value=0.9 [profile=NAME] [model=NAME] [KEY=VALUE ...] [--exhaustive]

A plan makes a short list of the methods that fit the workload. A race in virtual time drops the
slow ones, and the finalists run over packets. The same command continues where it was stopped.
"""

from pathlib import Path

from harness.advise import answer, stages
from harness.advise.answer import Advice
from harness.advise.compositions import Question, question
from harness.advise.stages import Plans, Race
from harness.cli.arguments import Arguments
from harness.reporting.report import report
from harness.validation import check_folder

OTHER_SEEDS = 10  # first seed of the regret; the race uses smaller ones
PAIRS = 6  # seeds of a race: the fewest with which a sign test can reach 5 %


def main(given: Arguments) -> int:
    """Run all stages and print the answer. Return 1 if no method reaches the target, else 0."""
    pairs = given.number("--pairs", PAIRS, 2, OTHER_SEEDS)
    about = question(given.overrides)
    if "--virtual-only" in given.flags:
        about = about.without_packets("--virtual-only was said")
    run = about.check()
    check_folder(about.dense().settings)
    plans = stages.planned(about, _say)
    raced = stages.raced(about, plans, pairs, _say)
    dense = plans.dense.composition.label
    found = answer.answered(raced.times)
    chosen = [raced.runs[name] for name in answer.finalists(found, dense)]
    packets = stages.over_packets(about, chosen, _say) if chosen else {}
    metric = run.target.metric or run.dataset.metric
    more = _regret(about, plans, found, pairs) if "--exhaustive" in given.flags else []
    folder = Path(run_folder(about))
    report(folder)
    print(f"\nadvice on {about.name}")
    goal = f"{metric} {run.target.value:g}"
    for line in answer.sentences(found, raced.times, goal, dense, packets) + more:
        print(line)
    return 0 if found.first else 1


def run_folder(about: Question) -> Path:
    settings = about.dense().settings
    return Path(settings["results"]) / settings["experiment"]


def _regret(about: Question, plans: Plans, found: Advice, pairs: int) -> list[str]:
    """Run all candidates with other seeds; return a line on the time the best would have saved."""
    if found.first is None:
        return []
    every = [plans.dense.composition, *plans.every]
    seeds = range(OTHER_SEEDS, OTHER_SEEDS + pairs)
    told = f"seeds {seeds[0]} to {seeds[-1]}"
    most = stages.at_most(about, every, seeds)
    _say(f"4. exhaustive sweep: {len(every)} methods, {told}, at most {most}")
    whole = Race(about, _say)
    for seed in seeds:
        whole.run(every, seed)
    return [answer.regretted(found.first, whole.times, told)]


def _say(line: str) -> None:
    print(line, flush=True)
