"""Advice: which method reaches a target soonest on a network, by plan, race, and real runs."""
