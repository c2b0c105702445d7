"""Run directories read: tables, metrics, ratios, and what a report says and draws of them."""
