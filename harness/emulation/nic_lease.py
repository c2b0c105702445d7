"""Loan of a real interface for a run: write the ledger, shape, and restore."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute

from harness.emulation import nic
from harness.emulation.ledger import Ledger, entry, path_of, settle
from harness.emulation.links import NetworkError
from harness.emulation.nic import Nic

log = logging.getLogger("harness")


@dataclass(frozen=True)
class Loan:
    """Loan of a real interface to a run: its owner, guard and time limit."""

    folder: Path  # of the ledgers
    run: str
    owner: str  # name of the guard
    limit_s: float


@contextmanager
def lease(
    ip: IPRoute, interface: str, peers: Sequence[str], control_port: int, loan: Loan
) -> Iterator[tuple[Nic, int]]:
    """Prepare `interface` to shape traffic of `peers`. Return it and its ifb's index.

    Raise NetworkError, before any change, if it is in use, configured by others, or the ledger
    cannot be written.
    """
    path = path_of(loan.folder, interface)
    if path.exists():
        for line in settle(path):
            log.warning("left by a dead run, removed first: %s", line)
    found = nic.find(ip, interface)
    nic.require_free(ip, found)
    ledger = Ledger(path, entry(ip, found, loan.owner, loan.run, loan.limit_s))
    try:
        yield found, nic.prepare(ip, found, peers, control_port)
    except BaseException:
        # The first failure is the cause. A failed restoring is only logged, as the guard runs.
        try:
            ledger.restore()
        except NetworkError as second:
            log.error("%s", second)
        raise
    ledger.restore()
