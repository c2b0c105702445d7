"""Gradient exchange of one rank: collectives, compression lanes, error feedback and statistics."""
