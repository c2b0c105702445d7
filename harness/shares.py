"""The records of a run that several machines have written, each its share; joined into one."""

import json
import os
from pathlib import Path

from harness.records import TABLES

EVENTS = "events.jsonl"


def share(run_dir: Path) -> dict[str, str]:
    """Rows of every table without their headers, and events, as text: what this machine has."""
    found = {}
    for name in (*TABLES, EVENTS):
        lines = (run_dir / name).read_text().splitlines(keepends=True)
        found[name] = "".join(lines[1:] if name in TABLES else lines)
    return found


def join(run_dir: Path, others: list[dict[str, str]]) -> None:
    """Add the shares of machines 1, 2, ...; rows in the order of their steps or times."""
    for name in TABLES:
        header, *rows = (run_dir / name).read_text().splitlines(keepends=True)
        for other in others:
            rows += other[name].splitlines(keepends=True)
        rows.sort(key=lambda row: float(row.partition(",")[0]))
        draft = run_dir / f".{name}"
        draft.write_text(header + "".join(rows))
        os.replace(draft, run_dir / name)
    with (run_dir / EVENTS).open("a") as file:
        for number, other in enumerate(others, 1):
            for line in other[EVENTS].splitlines():
                file.write(json.dumps(json.loads(line) | {"machine": number}) + "\n")
