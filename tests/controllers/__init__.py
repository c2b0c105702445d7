"""Laws of the controllers."""
