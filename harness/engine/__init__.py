"""The program of a rank: training step, gradient exchange, and ways to divide a model."""
