"""Run all experiments of a paper: `study reproduce PAPER [scale=laptop] [KEY=VALUE]`.

scale=quick runs a part of scale=laptop: fewer experiments, methods and seeds. A later scale=laptop
reuses its runs. The same command continues after an interruption.
"""

import argparse
import sys
from pathlib import Path

from harness.clock import minutes_of
from harness.config.refused import in_a_line
from harness.config.settings import BadSetting, Settings
from harness.predict.cost_estimate import Estimate, host_overhead
from harness.records import environment
from harness.records.outputs import CannotWrite
from harness.reporting.analysis.load import NoRuns
from harness.reproduce import page, reference
from harness.reproduce.paper import OF_QUICK, QUICK, Paper, check, results_of
from harness.reproduce.perform import ATTEMPTS, perform
from harness.runner import signals
from harness.runner.run import Outcome, failure_report
from harness.validation import check_folder


def main() -> int:
    """Reproduce a paper. Return 0; 1 for a bad setting or a failed run; 130 for Ctrl-C."""
    asked = _arguments()
    signals.stop_in_order()
    try:
        whole, overrides = Paper.read(asked.paper), asked.overrides
        if asked.reference:
            if asked.only or QUICK in overrides:
                raise BadSetting(
                    "--reference keeps a whole study: leave --only and scale=quick out"
                )
            print(*reference.write(whole, results_of(overrides), overrides), sep="\n")
            return 0
        paper = whole
        if QUICK in overrides:
            paper = whole.quickly()
            overrides = [OF_QUICK if each == QUICK else each for each in overrides]
        paper = paper.only(asked.only)
        with in_a_line(asked.overrides):
            runs, scale, *_ = paper.described(overrides)
        if scale:
            print(scale)
        check(runs)
        estimate = _announced(runs)
        if asked.plan:
            return 0
        check_folder(runs[0])
        return _reproduced(whole, runs, estimate)
    except (BadSetting, NoRuns, CannotWrite) as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness study reproduce", description=__doc__)
    parser.add_argument("paper", metavar="PAPER", help="a study's name, or one's own yaml file")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="of every run")
    parser.add_argument(
        "--plan", action="store_true", help="only check, and print how long it takes"
    )
    parser.add_argument(
        "--only", metavar="EXPERIMENT", nargs="+", default=[], help="of the paper; all, without"
    )
    parser.add_argument(
        "--reference",
        action="store_true",
        help="write the results of the whole study to results/reference/PAPER",
    )
    return parser.parse_intermixed_args()


def _announced(runs: list[Settings]) -> Estimate:
    """Print how many runs remain and the time that they take; return this estimate."""
    estimate = Estimate()
    for settings in runs:
        estimate.add(settings)
    left = {True: "in virtual time", False: "over packets"}
    parts = [
        f"{estimate.runs(kind)} {name}, about {minutes_of(estimate.left_s(kind))}"
        for kind, name in left.items()
        if estimate.runs(kind)
    ]
    todo = estimate.runs(True) + estimate.runs(False)
    said = "; ".join(parts) or "none"
    print(f"{len(runs)} runs, {len(runs) - todo} of them done before; to do: {said}")
    if added := host_overhead(estimate.over_packets()):
        print(added)
    _tell_origin(runs)
    return estimate


def _tell_origin(runs: list[Settings]) -> None:
    """Warn if virtual time uses constants that were fitted on another machine."""
    here = environment.machine()
    for other in sorted({each["network"].get("fitted_on") or here for each in runs} - {here}):
        print(
            f"virtual time has the constants of {other}, and this is {here}: for this machine's, "
            "run `python -m harness.doctor --calibrate --force` first, which takes four minutes",
            file=sys.stderr,
        )


def _reproduced(paper: Paper, runs: list[Settings], estimate: Estimate) -> int:
    """Do `runs`, then write the page of all runs of the paper; return the exit status."""

    def tell(settings: Settings, outcome: Outcome) -> None:
        estimate.ended(settings)
        _tell(settings, outcome, estimate)

    estimate.begin()
    outcomes = perform(runs, tell)
    failed = [outcome for outcome in outcomes if outcome.state != "succeeded"]
    for outcome in failed:
        print(f"{outcome.run_dir}\n{failure_report(outcome)}", file=sys.stderr)
    if failed:
        told = f"{len(failed)} of {len(runs)} runs did not succeed in {ATTEMPTS} attempts"
        print(told, file=sys.stderr)
    print("all runs are done; reports follow", flush=True)
    print(page.write(paper, Path(runs[0]["results"])))
    return 1 if failed else 0


def _tell(settings: Settings, outcome: Outcome, estimate: Estimate) -> None:
    left = estimate.runs(True) + estimate.runs(False)
    label = f"{settings['experiment']} {settings['method.name']} seed {settings['seed']}"
    more = f"{left} to do, about {minutes_of(estimate.left_s())}"
    why = "" if outcome.state == "succeeded" else f" ({outcome.error})"
    print(f"{label}: {outcome.state}{why}; {more}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
