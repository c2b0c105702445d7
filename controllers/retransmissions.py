"""TCP's count of retransmitted segments, the only system quantity that controllers read."""

from pathlib import Path

SNMP = Path("/proc/net/snmp")  # of the network namespace this process is in
COUNTER = "RetransSegs"


def retransmitted() -> int:
    """Return the number of TCP segments retransmitted in this network namespace since its start.

    Workers of a node share the namespace and the count. Raise OSError if there is no counter.
    """
    rows = [line.split() for line in SNMP.read_text().splitlines() if line.startswith("Tcp:")]
    for names, values in zip(rows[::2], rows[1::2], strict=False):
        if COUNTER in names:
            return int(values[names.index(COUNTER)])
    raise OSError(f"{SNMP} has no {COUNTER}")
