"""Laws of the figures."""
