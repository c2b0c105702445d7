"""A rank's program: its step, its exchange, and the ways to divide a model over ranks."""
