"""Laws of the models."""
