"""Removes what dead runs left behind: `python -m harness.clean [--dry-run]`.

Runs in namespaces leave nothing. Left may be a real interface still shaped (network=host), when
both the run and its watchdog were killed, and folders of temporary files. What a live run owns
stays. Exit status 1 when something could not be put back.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.emulation import ledger
from harness.emulation.links import NetworkError
from harness.locks import directory_lock, holder
from harness.records import printable, status
from harness.records.status import temporary

LEDGERS = "/var/lib/gradnet"  # as in conf/network/host.yaml


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.clean", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be removed")
    parser.add_argument("--ledger", type=Path, default=Path(LEDGERS), help="folder of ledgers")
    parser.add_argument("--results", type=Path, default=Path("results"), help="root of the runs")
    given = parser.parse_args(arguments)
    verb = "would remove" if given.dry_run else "removed"
    found, problems = [], []
    for path in sorted(given.ledger.glob(f"*{ledger.SUFFIX}")):
        try:
            found += [f"{verb} {line}" for line in ledger.settle(path, given.dry_run)]
        except ledger.InUse:
            continue
        except (NetworkError, OSError) as error:
            problems.append(f"could not restore: {error}")
    for run_dir in _dead(given.results):
        if not given.dry_run:
            shutil.rmtree(temporary(run_dir))
        found.append(f"{verb} {temporary(run_dir)}: its run is {status.state(run_dir)}")
    print("\n".join(map(printable.line, [*found, *problems])) or "nothing to do")
    return 1 if problems else 0


def _dead(results: Path) -> Iterator[Path]:
    """Run directories with temporary files that no process uses any more."""
    for place in ("*/*", "*/.machines/*"):
        for file in sorted(results.glob(f"{place}/status.json")):
            run_dir = file.parent
            dead = status.state(run_dir) in status.FINAL and holder(directory_lock(run_dir)) is None
            there = temporary(run_dir).is_dir() and not temporary(run_dir).is_symlink()
            if there and dead:  # on no other machine either
                yield run_dir


if __name__ == "__main__":
    sys.exit(main())
