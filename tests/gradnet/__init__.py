"""Laws of the library for one's own training script."""
