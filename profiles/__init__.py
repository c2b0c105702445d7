"""Network conditions, one kind per file."""
