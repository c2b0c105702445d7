"""Command `report FOLDER`: compare the runs in FOLDER, or with --status show a sweep's progress."""

import sys
from pathlib import Path

from harness.cli import status
from harness.cli.arguments import Arguments


def main(given: Arguments) -> int:
    """Print tables, write figures and pages; return 1 without runs or with damaged ones, else 0."""
    folder = Path(given.words[0])
    if "--status" in given.flags:
        return status.show(folder, once="--once" in given.flags)
    from harness.reporting import measurable  # imports pandas and matplotlib, so only on demand
    from harness.reporting.analysis import load
    from harness.reporting.figures import style_file
    from harness.reporting.report import report

    path = given.flags.get("--style")
    style = style_file.read(Path(path)) if path else None
    try:
        runs = measurable.runs(folder)
        if style:
            known = {*runs.method.dropna()}
            for name in {*style.names, *style.colours, *style.order} - known:
                print(f"--style {path}: no run here is of {name}", file=sys.stderr)
        report(
            folder,
            given.flags.get("--baseline"),
            given.flags.get("--out"),
            agreement_alone="--agreement" in given.flags,
            pdf="--pdf" in given.flags,
            runs=runs,
            style=style,
        )
    except load.NoRuns as error:
        print(error, file=sys.stderr)
        return 1
    return int((runs.damaged != "").any())  # the report lists them
