"""One run, from its directory to whether it may be believed; its processes followed and ended."""
