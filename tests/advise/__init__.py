"""Laws of what reads runs: tables, metrics, ratios, reports."""
