"""Laws of the profiles."""
