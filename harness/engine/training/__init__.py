"""Training of one rank: build, step, time, save and resume."""
