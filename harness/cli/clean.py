"""Command `doctor --clean [--dry-run]`: remove what dead runs left behind.

Runs in namespaces leave nothing. If a run and its watchdog were both killed, a real interface may
still be shaped (network=host), and temporary files may remain. Anything a live run uses is kept.
The exit status is 1 if something could not be restored.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.cli.arguments import Arguments
from harness.emulation import ledger
from harness.emulation.links import NetworkError
from harness.locks import directory_lock, holder
from harness.records import printable, status
from harness.records.status import temporary


def main(given: Arguments) -> int:
    """Remove (or print) leftovers of dead runs; return 1 if one could not be restored, else 0."""
    dry_run = "--dry-run" in given.flags
    ledgers = Path(given.flags.get("--ledger", ledger.FOLDER))
    verb = "would remove" if dry_run else "removed"
    found, problems = [], []
    for path in sorted(ledgers.glob(f"*{ledger.SUFFIX}")):
        try:
            found += [f"{verb} {line}" for line in ledger.settle(path, dry_run)]
        except ledger.InUse:
            continue
        except (NetworkError, OSError) as error:
            problems.append(f"could not restore: {error}")
    for run_dir in _dead(Path(given.flags.get("--results", "results"))):
        if not dry_run:
            shutil.rmtree(temporary(run_dir))
        found.append(f"{verb} {temporary(run_dir)}: its run is {status.state(run_dir)}")
    print("\n".join(map(printable.line, [*found, *problems])) or "nothing to do")
    return 1 if problems else 0


def _dead(results: Path) -> Iterator[Path]:
    """Yield the run directories with temporary files that no process uses any more."""
    for place in ("*/*", "*/.machines/*"):
        for file in sorted(results.glob(f"{place}/status.json")):
            run_dir = file.parent
            dead = status.state(run_dir) in status.FINAL and holder(directory_lock(run_dir)) is None
            there = temporary(run_dir).is_dir() and not temporary(run_dir).is_symlink()
            if there and dead:  # the lock also covers other machines
                yield run_dir
