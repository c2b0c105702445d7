"""Sizes of packets that pass a shaper at once: constants independent of the kernel."""

BURST_US = 2000  # of its rate, that an idle shaper lets through at once
LARGEST_BYTES = 65_536  # of a packet that segmentation offload makes
