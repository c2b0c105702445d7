"""Laws of the parameter server."""
