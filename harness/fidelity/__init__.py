"""Compare predictions of the cost model with the timing tables that papers published."""
