"""Laws of whole runs: how they end, whatever happens to them."""
