"""Command `quickstart`: find the fastest method at eight link rates, then prove it with packets.

The answer comes from virtual time: each method trains once and is timed at all rates. The proof
runs the same methods over real packets at one rate and compares the step times. The exit status is
0 if there is an answer, whatever the proof shows; with strict=true it is 3 if a proof is not valid.

A rule selects the rates: powers of two, from 1/32 to 4, times the rate at which dense communication
takes as long as computation (0.64 MB in 60 ms with four workers: 128 Mbit/s). The proof uses a
quarter of that rate. The methods are the dense baseline and one unchanged preset of each family.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from math import nan
from pathlib import Path

import pandas as pd

from harness.cli.run_queue import NOT_VALID
from harness.config import label
from harness.config.refused import in_a_line
from harness.config.scales import describe
from harness.config.settings import Settings
from harness.records.outputs import OutputFolder
from harness.reporting import labels, report
from harness.reporting.analysis import load, metrics, statistics
from harness.reporting.figures import styles, theme
from harness.reporting.figures.rates import times_over_rates
from harness.runner import run
from harness.runner.progress import Display
from harness.validation import check_folder, checked

METHODS = "allreduce,topk,qsgd,powersgd,localsgd"
BALANCED_MBIT = 128
RATES_MBIT = [BALANCED_MBIT * 2**power for power in range(-5, 3)]
PROOF_MBIT = BALANCED_MBIT // 4
PROOF_STEPS = 40
PROOF_TIME = ["emulation.dilation=auto"]  # retry slower if only load made the run invalid
NO_NAMESPACES = ("proof over packets: this machine forbids network namespaces; "
                 "`python -m harness.doctor` says what to do")  # fmt: skip
WIDTH = 14  # characters of a method's label in a line
BAR = 24  # characters for the slowest method


def main(arguments: list[str]) -> int:
    """Run both parts, print results, return the exit status. BadSetting comes before the start."""
    given = [argument for argument in arguments if argument != "strict=true"]
    rates = ",".join(map(str, RATES_MBIT))
    answer = performed(
        "answer", planned(["network=calibrated", f"profile.rate_mbit={rates}", *given])
    )
    times = times_by_rate(answer)
    print("\n".join(answer_lines(answer, times)), flush=True)
    status = 0
    with part("figure and page"):
        draw(answer, times)
    with part("proof"):
        overrides = [f"profile.rate_mbit={PROOF_MBIT}", f"steps={PROOF_STEPS}", *PROOF_TIME]
        asked = planned([*overrides, *given])
        if any(settings.build("network").in_process for settings in asked):
            print(NO_NAMESPACES)
            counts = False
        else:
            proof = performed("proof", asked)
            print("\n".join(proof_lines(answer, proof)))
            counts = all(proof.left_out == "")
        if "strict=true" in arguments and not counts:
            status = NOT_VALID
    return status


@contextmanager
def part(name: str) -> Iterator[None]:
    """Context manager: print an error of the part `name` in one line, and continue."""
    try:
        yield
    except Exception as error:
        print(f"{name}: failed: {(str(error) or repr(error)).splitlines()[0]}")


def planned(overrides: list[str]) -> list[Settings]:
    """Return the checked settings of a part's runs. Raise BadSetting if one is invalid."""
    command = ["-m", "+experiment=quickstart", f"method={METHODS}", "profile=static", *overrides]
    with in_a_line(command):
        asked = describe([command]).runs
        for settings in asked:
            checked(settings)
        check_folder(asked[0])
    return asked


def performed(name: str, asked: list[Settings]) -> pd.DataFrame:
    """Do the runs `asked` of a part, and print one line per method.

    Return their rows of `load.runs`, with labels in `method`, names in `name`, and `rate_mbit`.
    """
    outcomes, display = {}, Display(len(asked))
    label_of = labels.labels_of({each["method.name"]: each.config for each in asked})
    for number, settings in enumerate(asked, 1):
        display.next_run()
        outcome = run.perform(settings, display)
        outcomes[str(outcome.run_dir)] = outcome
        method = label_of[settings["method.name"]]
        last = number == len(asked) or settings["method.name"] != asked[number]["method.name"]
        if outcome.state not in ("succeeded", "invalid"):
            print(f"{name}: {method}: {outcome.error or outcome.state}")
        elif last:
            print(f"{name}: {method}, {number} of {len(asked)} runs", flush=True)
    runs = load.runs(next(iter(outcomes)).rpartition("/")[0])
    runs = runs[runs.path.isin(outcomes) & runs.method.notna()]
    runs = runs.sort_values("path", key=lambda paths: paths.map(list(outcomes).index))
    rates = runs.conditions.map(lambda told: float(told["profile.rate_mbit"]))
    return runs.assign(rate_mbit=rates, name=runs.method, method=runs.method.map(label_of))


def times_by_rate(answer: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return a table per method: seconds to the target by rate, columns mean_s, low_s, high_s.

    Values are NaN at a rate at which a seed misses the target.
    """
    measured = metrics.table(answer).merge(answer[["path", "rate_mbit"]], on="path")
    times = {}
    for method, runs in measured.groupby("method", sort=False):
        rows = {}
        for rate, of_rate in runs.groupby("rate_mbit"):
            known = statistics.interval(of_rate.time_to_target_s)
            rows[rate] = (
                (known.mean, known.low, known.high) if of_rate.reached.all() else (nan,) * 3
            )
        times[str(method)] = pd.DataFrame(rows, index=["mean_s", "low_s", "high_s"]).T
    return times


def answer_lines(answer: pd.DataFrame, times: dict[str, pd.DataFrame]) -> list[str]:
    """Return lines on the answer: bars of times at the proof's rate, the best method per rate."""
    one = answer.iloc[0]
    at_rate = {name: float(table.mean_s.get(PROOF_MBIT, nan)) for name, table in times.items()}
    known = sorted((value, name) for name, value in at_rate.items() if value == value)
    seeds = answer.seed.nunique()
    sure = f"{seeds} seeds" if seeds > 1 else "one seed: no interval"
    network = f"{one.workers} workers, links of {PROOF_MBIT} Mbit/s (virtual time, {sure})"
    lines = [f"\n{one.metric} {one.target:g}, {network}"]
    for value, name in known:
        bar = "#" * max(1, round(BAR * value / known[-1][0]))
        times_first = f"  {value / known[0][0]:.1f} x the first" if value > known[0][0] else ""
        lines.append(f"  {name:<{WIDTH}}{value:7.1f} s  {bar}{times_first}")
    finals = metrics.table(answer).groupby("method").final.mean()
    lines += [f"  {name:<{WIDTH}}not within {one.steps} steps (ends at {finals.get(name, nan):.2f})"
              for name, value in at_rate.items() if value != value]  # fmt: skip
    means = pd.DataFrame({name: table.mean_s for name, table in times.items()})
    if (means := means.dropna(how="all")).empty:
        return [*lines, "no method reaches it at any rate"]
    first = means.idxmin(axis=1)
    spans = [f"{name} from {rates.min():g} to {rates.max():g}"
             for name, rates in first.index.to_series().groupby(first, sort=False)]  # fmt: skip
    lines.append(f"first by rate (Mbit/s): {', '.join(spans)}")
    baseline = dict(zip(answer.name, answer.method, strict=True)).get(label.ALLREDUCE)
    if baseline in means and means[baseline].notna().any():
        ratios = (means[baseline] / means.min(axis=1)).dropna().iloc[[0, -1]]
        said = ", ".join(f"{ratio:.1f} x at {rate:g}" for rate, ratio in ratios.items())
        lines.append(f"{baseline} takes, against the first: {said}")
    return lines


def draw(answer: pd.DataFrame, times: dict[str, pd.DataFrame]) -> None:
    """Write the figure of times over rates, and the page of the runs at the proof's rate."""
    one = answer.iloc[0]
    out = OutputFolder.beside(Path(one.path).parent, "report")
    title = f"{one.metric} {one.target:g}; larger: first at that rate"
    never = {name: f"not within {one.steps} steps"
             for name, table in times.items() if table.mean_s.isna().all()}  # fmt: skip
    with styles.of_page(dict(zip(answer.method, answer.name, strict=True))):
        figure = times_over_rates(times, "time to the target (emulated s)", title, never)
    print(f"figure {theme.save(figure, out, 'rates')[0]}")
    with redirect_stdout(io.StringIO()):  # the page has these tables
        named = answer.assign(method=answer.name)
        report.report(Path(one.path).parent, runs=named[named.rate_mbit == PROOF_MBIT])
    print(f"page   {out.path / 'index.html'}")


def proof_lines(answer: pd.DataFrame, proof: pd.DataFrame) -> list[str]:
    """Return a line per method: its step time over packets, the predicted one, and its validity."""
    predicted = answer[answer.rate_mbit == PROOF_MBIT].groupby("method").path.first()
    lines = [f"proof over packets, {PROOF_MBIT} Mbit/s, {PROOF_STEPS} steps:"]
    names = ["method", "path", "left_out", "grade", "late_at_most_share", "dilation"]
    for method, path, why, grade, share, dilation in proof[names].to_numpy():
        took_ms = 1000 * metrics.iteration_s(load.steps(path))
        expected_ms = 1000 * metrics.iteration_s(load.steps(predicted[method]))
        verdict = f"; does not count: {why.removeprefix('invalid: ')}" if why else ""
        if grade == "bounded" and not why:
            verdict = f"; counts within {share:.0%}: other programs had the processors"
        if dilation and dilation > 1:
            verdict = f" (emulation.dilation={dilation:g}){verdict}"
        lines.append(
            f"  {method:<{WIDTH}}{took_ms:6.0f} ms a step, predicted {expected_ms:.0f}{verdict}"
        )
    return lines
