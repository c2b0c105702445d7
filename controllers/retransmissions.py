"""How often TCP sends again, as Linux counts it; all that a controller ever reads from a system."""

from pathlib import Path

SNMP = Path("/proc/net/snmp")  # of the network namespace this process is in
COUNTER = "RetransSegs"


def retransmitted() -> int:
    """Segments this namespace has sent again since it exists; OSError where nobody counts them.

    Workers of one node share a namespace, and with it the count.
    """
    rows = [line.split() for line in SNMP.read_text().splitlines() if line.startswith("Tcp:")]
    for names, values in zip(rows[::2], rows[1::2], strict=False):
        if COUNTER in names:
            return int(values[names.index(COUNTER)])
    raise OSError(f"{SNMP} has no {COUNTER}")
