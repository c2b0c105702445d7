"""Where on a grid of settings a claim holds: each point is run in virtual time, and judged.

python -m harness.sensitivity +experiment=NAME --claim TEXT --grid KEY=V1,V2 [--grid ...]
python -m harness.sensitivity --ranges FILE [KEY=VALUE]

TEXT is a piece of `id: text` of a claim. Keys are those of `python -m harness`; the first two have
the axes of the map. FILE is a yaml with claim, overrides and axes, of each key its admissible
values and why, to be written before the runs. Runs are kept below results/sensitivity, so that the
same command goes on, and a method whose controller does not react to the network is trained once
for all networks. With `testbed`, a paper's, in the place of overrides the axes are its constants,
and points are replayed as `harness.fidelity` does.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.clock import minutes_of
from harness.config import plain_yaml
from harness.config.refused import in_a_line
from harness.config.scales import describe
from harness.config.search_path import readable
from harness.config.settings import BadSetting, Settings
from harness.config.typed import require
from harness.fidelity.timing import timings
from harness.preview import Parser
from harness.records.outputs import OutputFolder, csv_text
from harness.reporting.analysis import load, metrics, sensitivity
from harness.reporting.analysis.sensitivity import Axes, Point
from harness.reporting.claims import judge
from harness.reporting.figures.sensitivity import holds_map
from harness.reporting.figures.theme import image
from harness.reproduce.estimate import Estimate
from harness.reproduce.perform import is_virtual, perform
from harness.runner.run import Outcome, failure_report
from harness.validation import checked

OF_MAPS = ("network=calibrated", "scale=laptop", "checkpoint_every=null", "report=false")
FOLDER = "sensitivity"
TOLD_EVERY = 20  # runs


class Ranges(NamedTuple):
    """A map that was decided on before its runs."""

    claim: str
    overrides: Sequence[str]  # of runs; none with a testbed
    axes: dict[str, tuple[str, ...]]
    testbed: str = ""  # the paper's, whose constants the axes are, in place of runs


class Judged(NamedTuple):
    """A claim at all points that could be run."""

    name: str  # id and text
    verdicts: dict[Point, str]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, judge, print and draw; one line and exit status 1 for a bad value."""
    try:
        _map(_parsed(arguments))
    except (BadSetting, OSError) as error:
        sys.exit(f"harness.sensitivity: {error}")


def _map(wanted: argparse.Namespace) -> None:
    ranges = _ranges(wanted.ranges) if wanted.ranges else Ranges("", (), {})
    if ranges.testbed:
        return _predicted(ranges, wanted.results / FOLDER)
    wanted.overrides = [*ranges.overrides, *wanted.overrides]
    wanted.claim = wanted.claim or ranges.claim
    axes: Axes = ranges.axes | dict(map(_axis, wanted.grid))
    if not (wanted.claim and axes and wanted.overrides):
        raise BadSetting("say overrides, --claim and --grid, or --ranges FILE, which has them")
    given = {each.partition("=")[0].lstrip("+") for each in wanted.overrides}
    with in_a_line(wanted.overrides):
        first = describe([["-m", *wanted.overrides]]).runs[0]
    if is_virtual(first):
        given.add("network")  # by the experiment
    usual = [each for each in OF_MAPS if each.partition("=")[0] not in given]
    results = f"results={wanted.results / FOLDER}"
    asked, refused = _asked([*wanted.overrides, *usual, results], axes)
    print(f"{len(asked)} points, {len(refused)} refused; {_cost(asked)}", flush=True)
    for line in _refusals(axes, refused):
        print(line)
    judged = _judged(asked, wanted.claim)
    for number, claim in enumerate(judged):
        _tell(claim, axes, number, len(refused), wanted.results / FOLDER)


def _predicted(ranges: Ranges, folder: Path) -> None:
    """Map a claim that replays on a testbed decide; each is a second, and nothing is kept."""
    if ranges.testbed not in (known := timings()):
        raise BadSetting(f"testbed must be one of {', '.join(known)}, got {ranges.testbed!r}")
    timing, points = known[ranges.testbed], sensitivity.points(ranges.axes)
    values = [dict(zip(ranges.axes, map(float, point), strict=True)) for point in points]
    print(f"{len(points)} points of {timing.title}", flush=True)
    found = []
    for claim in timing.verdicts(ranges.claim, values):
        found.append(claim)
        if len(found) % TOLD_EVERY == 0:
            print(f"{len(found)} of {len(points)} done", flush=True)
    verdicts = {point: claim.verdict for point, claim in zip(points, found, strict=True)}
    _tell(Judged(f"{found[0].id}: {found[0].text}", verdicts), ranges.axes, 0, 0, folder)


def _tell(claim: Judged, axes: Axes, number: int, refused: int, folder: Path) -> None:
    """Print where a claim holds, in words, and draw it as a map."""
    print(claim.name)
    print("\n".join(f"  {line}" for line in sensitivity.told(axes, claim.verdicts, refused)))
    print(f"  {_draw(folder, number, claim, axes)}")


def _cost(asked: dict[Point, list[Settings]]) -> str:
    """Number of runs, and how long those take that are to be done."""
    estimate, runs = Estimate(), [settings for each in asked.values() for settings in each]
    for settings in runs:
        estimate.add(settings)
    return f"{len(runs)} runs, {estimate.runs(True)} to do, about {minutes_of(estimate.left_s())}"


def _refusals(axes: Axes, refused: dict[Point, str]) -> list[str]:
    """A line for each reason, with the first point that it is of."""
    points: dict[str, list[Point]] = {}
    for point, why in refused.items():
        points.setdefault(why, []).append(point)
    return [
        f"refused, {len(each)} points, such as {_said(axes, each[0])}: {why}"
        for why, each in points.items()
    ]


def _ranges(file: Path) -> Ranges:
    """The grid of a file; BadSetting for one without these keys, or an axis without a reason."""
    require(file.is_file(), "--ranges", str(file), "a yaml file")
    with readable(file):
        told: Any = plain_yaml.from_file(file)
    kinds = [{"claim", "axes", kind} for kind in ("overrides", "testbed")]
    if not isinstance(told, dict) or set(told) not in kinds:
        raise BadSetting(f"{file} must have the keys claim, axes, and overrides or testbed")
    for key, axis in told["axes"].items():
        if not isinstance(axis, dict) or set(axis) != {"values", "why"} or not axis["why"]:
            raise BadSetting(f"{file}: axes.{key} must have values and why, got {axis!r}")
    axes = [_axis(f"{k}={','.join(map(str, axis['values']))}") for k, axis in told["axes"].items()]
    return Ranges(**told | {"overrides": told.get("overrides", ()), "axes": dict(axes)})


def _axis(told: str) -> tuple[str, tuple[str, ...]]:
    key, _, values = told.partition("=")
    found = tuple(dict.fromkeys(filter(None, values.split(","))))
    if not key or len(found) < 2:
        raise BadSetting(f"--grid must be KEY=V1,V2,... with two values or more, got {told!r}")
    return key, found


def _asked(
    overrides: list[str], axes: Axes
) -> tuple[dict[Point, list[Settings]], dict[Point, str]]:
    """The runs of every point, and why other points can have none; BadSetting if none can."""
    asked, refused = {}, {}
    for point in sensitivity.points(axes):
        own = [f"{key}={value}" for key, value in zip(axes, point, strict=True)]
        try:
            with in_a_line([*overrides, *own]):
                runs = describe([["-m", *overrides, *own]]).runs
            for settings in runs:
                if not checked(settings).network.in_process:
                    raise BadSetting("network must be of virtual time, simulated or calibrated")
            asked[point] = runs
        except BadSetting as error:
            refused[point] = str(error)
    if not asked:
        raise BadSetting(f"no point of the grid can be run: {next(iter(refused.values()))}")
    return asked, refused


def _judged(asked: dict[Point, list[Settings]], wanted: str) -> list[Judged]:
    """Claims with `wanted` in them that these runs are of; BadSetting if there is none."""
    found: dict[str, dict[Point, str]] = {}
    _perform([settings for runs in asked.values() for settings in runs])
    for point, runs in asked.items():
        done = [settings.run_dir() for settings in runs]
        rows = pd.concat(map(load.runs, done), ignore_index=True)
        for claim in judge(metrics.table(rows)):
            if wanted in (name := f"{claim.id}: {claim.text}") and claim.runs:
                found.setdefault(name, {})[point] = claim.verdict
    if not found:
        wrong = f"--claim must be a piece of `id: text` of a claim on these runs, got {wanted!r}"
        raise BadSetting(wrong)
    return [Judged(name, verdicts) for name, verdicts in found.items()]


def _perform(runs: list[Settings]) -> None:
    """Do them, as many at a time as there are cores; the others of a failed one still decide."""
    ended = failed = 0

    def tell(settings: Settings, outcome: Outcome) -> None:
        nonlocal ended, failed
        ended += 1
        if outcome.state != "succeeded":
            failed += 1
            print(failure_report(outcome), file=sys.stderr)
        if ended % TOLD_EVERY == 0:
            print(f"{ended} of {len(runs)} runs done, {failed} failed", flush=True)

    perform(runs, tell)


def _said(axes: Axes, point: Point) -> str:
    return " ".join(f"{key}={value}" for key, value in zip(axes, point, strict=True))


def _draw(folder: Path, number: int, claim: Judged, axes: Axes) -> Path:
    """Write the verdict of every point as csv, and the map beside it; its path."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", claim.name).strip("_")[:60]
    out = OutputFolder.beside(folder.parent, folder.name)
    rows = [(*point, verdict) for point, verdict in claim.verdicts.items()]
    out.write(f"{number}_{words}.csv", csv_text(pd.DataFrame(rows, columns=[*axes, "verdict"])))
    shares = np.array(sensitivity.shares(axes, claim.verdicts))
    figure = holds_map(claim.name, axes, shares)
    return out.write(f"{number}_{words}.svg", image(figure, "svg"))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    usage = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="python -m harness.sensitivity", description=__doc__, formatter_class=usage
    )
    parser.add_argument("overrides", nargs="*", help="as for python -m harness")
    parser.add_argument("--claim", help="a piece of its `id: text`")
    parser.add_argument("--grid", action="append", default=[], help="KEY=V1,V2,...")
    parser.add_argument("--ranges", type=Path, help="yaml of claim, overrides, axes with reasons")
    parser.add_argument("--results", type=Path, default=Path("results"))
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":
    main()
