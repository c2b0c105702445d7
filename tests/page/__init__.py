"""Pages of a report."""
