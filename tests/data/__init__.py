"""Laws of the data sets."""
