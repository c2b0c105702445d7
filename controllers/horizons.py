"""Horizons to choose from: local steps between two exchanges."""

from collections.abc import Sequence

from controllers.limits import check


def check_horizons(horizons: Sequence[int]) -> None:
    """One or more whole numbers >= 1; ValueError otherwise."""
    good = len(horizons) > 0 and all(type(each) is int and each >= 1 for each in horizons)
    check("horizons", list(horizons), good, "one or more whole numbers >= 1")
