"""Which compressor, under which controller, reaches a target soonest on a network like mine?

python -m harness.advise target.value=0.9 [profile=NAME] [model=NAME] [KEY=VALUE] [--exhaustive]

A plan leaves a short list of all that fits the workload, a race in virtual time drops who is
clearly behind, the finalists run over packets. The same command goes on where it was stopped.
"""

import argparse
import sys
from pathlib import Path

from harness import signals
from harness.advise import answer, stages
from harness.advise.answer import Advice
from harness.advise.compositions import Question, question
from harness.advise.stages import Plans, Race
from harness.config.settings import BadSetting
from harness.records.outputs import CannotWrite
from harness.report import report
from harness.validation import check_folder

OTHER_SEEDS = 10  # the first of those that regret is judged by: none that an answer was found with
PAIRS = 6  # seeds of a race: the fewest whose signs alone can tell a difference at 5 %


def main() -> int:
    """Run the command. Exit status 1 for a bad setting, or if no method reaches the target."""
    asked = _arguments()
    signals.stop_in_order()
    try:
        return advise(asked)
    except (BadSetting, CannotWrite) as error:
        print(f"advise: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def _arguments() -> argparse.Namespace:
    about, usage, more = (__doc__ or "").strip().split("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m harness.advise", description=f"{about} {more}", allow_abbrev=False
    )
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="as of a run")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"seeds of the race ({PAIRS})")
    parser.add_argument("--virtual-only", action="store_true", help="no finalists over packets")
    parser.add_argument(
        "--exhaustive", action="store_true", help="also run all that fits with other seeds: regret"
    )
    return parser.parse_intermixed_args()


def advise(asked: argparse.Namespace) -> int:
    """Run all stages and print the answer. Raise BadSetting before anything starts."""
    if not 2 <= asked.pairs <= OTHER_SEEDS:
        raise BadSetting(
            f"--pairs must be at least 2, for an interval, and at most {OTHER_SEEDS}, "
            f"got {asked.pairs}"
        )
    about = question(asked.overrides)
    if asked.virtual_only:
        about = about.without_packets("--virtual-only was said")
    run = about.check()
    check_folder(about.dense().settings)
    plans = stages.planned(about, _say)
    raced = stages.raced(about, plans, asked.pairs, _say)
    dense = plans.dense.composition.label
    found = answer.answered(raced.times)
    chosen = [raced.runs[name] for name in answer.finalists(found, dense)]
    packets = stages.over_packets(about, chosen, _say) if chosen else {}
    metric = run.target.metric or run.dataset.metric
    more = _regret(about, plans, found, asked.pairs) if asked.exhaustive else []
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
    """Run all candidates with other seeds, and say what the best of them would have saved."""
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


if __name__ == "__main__":
    sys.exit(main())
