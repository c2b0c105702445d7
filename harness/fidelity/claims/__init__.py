"""What the papers say of time in words, held against what the cost model predicts."""
