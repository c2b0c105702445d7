"""Grades and bounds of whole runs over packets beside endless loops, against quiet twins.

Prints a row for each run: its time, how much longer that is than the quickest run without loops
(its twin), the bound of its lateness, and its grade. The last column names a run that is valid and
more than 5 % longer, and one whose bound misses its twin. A twin is only as quiet as the machine.

    python benchmarks/load.py [--results FOLDER] [--loops 0,0,1,2,4] [--nice 0,19] [KEY=VALUE ...]
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.config.scales import describe
from harness.records.run_directory import read_json
from harness.runner import run
from harness.runner.lateness import MOST_VALID_SHARE
from harness.validation import checked

COMMAND = ["-m", "+experiment=quickstart", "profile=static", "rerun=true", "eval_every=1000"]
LOOP = "import os, sys; os.setsid(); os.nice(int(sys.argv[1]))\nwhile True: pass"


@contextmanager
def endless_loops(count: int, nice: int) -> Iterator[None]:
    """Keep `count` programs running that never wait, each in a session of its own."""
    command = [sys.executable, "-c", LOOP, str(nice)]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_beside(loops: int, nice: int, overrides: Sequence[str], results: Path) -> dict:
    """Summary of one run beside `loops` endless loops, with the machine's load before it."""
    [settings] = describe([[*COMMAND, f"results={results}", *overrides]]).runs
    checked(settings)
    load = os.getloadavg()[0]
    with ExitStack() as beside:
        beside.enter_context(endless_loops(loops, nice))
        outcome = run.perform(settings)
    summary = read_json(outcome.run_dir / "summary.json")
    if summary is None:
        raise SystemExit(f"{outcome.run_dir}: {outcome.state}: {outcome.error}")
    return summary | {"loops": loops, "nice": nice, "load": load}


def table(found: Sequence[dict]) -> list[str]:
    """Rows of a Markdown table; the twin is the quickest run without loops."""
    twin_s = min(each["time_s"] for each in found if not each["loops"])
    lines = ["| loops | nice | load before | seconds | longer than its twin | bound | grade | |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for each in found:
        took_s, late_s = each["time_s"], each["late_at_most_s"]
        longer = took_s / twin_s - 1
        wrong = "MISSES ITS TWIN" if late_s is not None and took_s - late_s > twin_s else ""
        if each["grade"] == "valid" and longer > MOST_VALID_SHARE:
            wrong = "VALID, AND TOO LATE"
        bound = "none" if late_s is None else f"{each['late_at_most_share']:.1%}"
        lines.append(f"| {each['loops']} | {each['nice']} | {each['load']:.1f} | {took_s:.2f} | "
                     f"{longer:+.1%} | {bound} | {each['grade']} | {wrong} |")  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results/load"))
    parser.add_argument("--loops", default="0,0,1,2,4")
    parser.add_argument("--nice", default="0,19")
    parser.add_argument("overrides", nargs="*", help="keys of the runs")
    asked = parser.parse_args()
    found = []
    for loops in map(int, asked.loops.split(",")):
        for nice in map(int, asked.nice.split(",")) if loops else (0,):
            found.append(run_beside(loops, nice, asked.overrides, asked.results))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
