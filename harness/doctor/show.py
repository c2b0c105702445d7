"""Output of findings: a coloured table on a terminal, aligned text elsewhere, or JSON."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.doctor.findings import Finding

COLOURS = {"ok": "green", "warn": "yellow", "missing": "bold red"}
NAME_WIDTH = 14

Groups = Mapping[str, Sequence[Finding]]


def verdict(groups: Groups, command: str) -> tuple[bool, str]:
    """Return whether `command` can run here, and one line that says so."""
    marks = [finding.mark for findings in groups.values() for finding in findings]
    missing = [f.name for findings in groups.values() for f in findings if f.mark == "missing"]
    if missing:
        return False, f"cannot run here: {command} (missing: {', '.join(missing)})"
    warnings = marks.count("warn")
    return True, f"can run here: {command}" + (f" ({warnings} warnings)" if warnings else "")


def show(groups: Groups, command: str) -> None:
    """Print the findings on standard output."""
    if sys.stdout.isatty():
        _on_terminal(groups, command)
    else:
        print(plain(groups, command))


def plain(groups: Groups, command: str) -> str:
    """Format findings without colours: one line each, and a second one for what to do."""
    lines = []
    for group, findings in groups.items():
        lines.append(group)
        for finding in findings:
            said = f"{finding.found}: {finding.means}" if finding.means else finding.found
            lines.append(f"  {finding.mark:<8}{finding.name:<{NAME_WIDTH}} {said}")
            if finding.enable:
                lines.append(" " * (NAME_WIDTH + 11) + f"-> {finding.enable}")
    return "\n".join([*lines, "", verdict(groups, command)[1]])


def _on_terminal(groups: Groups, command: str) -> None:
    console = Console(highlight=False)
    for group, findings in groups.items():
        console.print(group, style="bold")
        table = Table.grid(padding=(0, 1))
        table.add_column(width=9)
        table.add_column(width=NAME_WIDTH)
        table.add_column(overflow="fold")
        for finding in findings:
            said = Text(finding.found)
            if finding.means:
                said.append(f": {finding.means}", style="dim")
            if finding.enable:
                said.append(f"\n-> {finding.enable}", style="cyan")
            mark = Text(f"  {finding.mark}", style=COLOURS[finding.mark])
            table.add_row(mark, Text(finding.name), said)
        console.print(table)
    runs, line = verdict(groups, command)
    console.print()
    console.print(Text(line, style=COLOURS["ok" if runs else "missing"]))


def as_json(groups: Groups, command: str) -> str:
    """Format `{"can_run", "verdict", "findings": [{"group", and the fields of a Finding}]}`."""
    runs, line = verdict(groups, command)
    found: list[dict[str, Any]] = [
        {"group": group, **finding._asdict()}
        for group, findings in groups.items()
        for finding in findings
    ]
    return json.dumps({"can_run": runs, "verdict": line, "findings": found}, indent=2)
