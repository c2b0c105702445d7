"""Which method reaches a target soonest on a network: by plan, race, and a few real runs."""
