"""The cost model against the papers."""
