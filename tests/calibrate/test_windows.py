"""Windows and slow start, measured over a real delay and fitted."""

from math import ceil, log2

from harness.calibrate import windows
from tests.emulation.virtual import virtual

RTT_MS = 40.0
SIZES_BYTES = (1 << 16, 1 << 20)
FIRST_BYTES = 10 * 1448  # Linux's first window (RFC 6928), at MTU 1500


@virtual
def test_windows_are_fitted_to_transfers_over_a_delay() -> None:
    """By bounds that hold on a busy machine: windows double once a round trip at most."""
    taken = windows.take(1, (RTT_MS,), SIZES_BYTES)
    assert [told[:2] for told in taken] == [(RTT_MS, nbytes) for nbytes in SIZES_BYTES]
    for _, nbytes, seconds in taken:
        flights = ceil(log2(1 + nbytes / FIRST_BYTES))
        assert seconds > (flights - 0.5) * RTT_MS / 1000, taken
    found = windows.fit([windows.row(*told) for told in taken])
    assert 1000 < found.initial_window_bytes < 2 * FIRST_BYTES, (found, taken)
