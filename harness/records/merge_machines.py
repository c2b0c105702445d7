"""Merge of the records that several machines wrote of one run."""

import json
import os
from heapq import merge
from pathlib import Path

from harness.records.run_directory import PACKET_TABLES, TABLES

EVENTS = "events.jsonl"
ROWS = (*TABLES, *PACKET_TABLES)


def share(run_dir: Path) -> dict[str, str]:
    """Return this machine's rows of every table without headers, and events, as text."""
    found = {}
    for name in (*ROWS, EVENTS):
        if (run_dir / name).exists():
            lines = (run_dir / name).read_text().splitlines(keepends=True)
            found[name] = "".join(lines if name == EVENTS else lines[1:])
    return found


def join(run_dir: Path, others: list[dict[str, str]]) -> None:
    """Add the shares of machines 1, 2, ..., with rows ordered by step or time.

    Rows of one machine keep their order, since its clock steps back when it is paused.
    """
    for name in ROWS:
        if not (run_dir / name).exists():
            continue
        header, *rows = (run_dir / name).read_text().splitlines(keepends=True)
        parts = [rows, *(other[name].splitlines(keepends=True) for other in others)]
        draft = run_dir / f".{name}"
        # The first column of every table is a step or a time.
        merged = merge(*parts, key=lambda row: float(row.partition(",")[0]))
        draft.write_text(header + "".join(merged))
        os.replace(draft, run_dir / name)
    with (run_dir / EVENTS).open("a") as file:
        for number, other in enumerate(others, 1):
            for line in other[EVENTS].splitlines():
                file.write(json.dumps(json.loads(line) | {"machine": number}) + "\n")
