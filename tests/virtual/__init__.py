"""Virtual time."""
