"""Range checks of controllers' parameters; errors name key, value and allowed range."""


def check(key: str, value: object, good: bool, allowed: str) -> None:
    """Raise ValueError unless `good`."""
    if not good:
        raise ValueError(f"{key} must be {allowed}, got {value!r}")


def is_number(value: object) -> bool:
    """Return True if `value` is a finite int or float, and no bool."""
    finite = isinstance(value, (int, float)) and abs(value) < float("inf")
    return finite and not isinstance(value, bool)


def check_densities(d_min: float, d_max: float, start: tuple[float, ...]) -> None:
    """Raise ValueError unless 0 < d_min <= d_max <= 1, and `start` has densities in (0, 1]."""
    check("d_max", d_max, is_number(d_max) and 0 < d_max <= 1, "in (0, 1]")
    good = is_number(d_min) and 0 < d_min <= d_max
    check("d_min", d_min, good, f"in (0, {d_max}] (d_max)")
    good = bool(start) and all(is_number(density) and 0 < density <= 1 for density in start)
    check("start", list(start), good, "one or more densities in (0, 1]")


def check_above(least: float, **values: float) -> None:
    """Raise ValueError, naming the key, for values that are not numbers > `least`."""
    for key, value in values.items():
        check(key, value, is_number(value) and value > least, f"a number > {least}")


def check_at_least(least: float, **values: float) -> None:
    """Raise ValueError, naming the key, for values that are not numbers >= `least`."""
    for key, value in values.items():
        check(key, value, is_number(value) and value >= least, f"a number >= {least}")


def check_share(**values: float) -> None:
    """Raise ValueError, naming the key, for values that are not numbers in (0, 1]."""
    for key, value in values.items():
        check(key, value, is_number(value) and 0 < value <= 1, "in (0, 1]")


def check_whole(least: int, **values: int) -> None:
    """Refuse, with ValueError, values that are not whole numbers >= `least`."""
    for key, value in values.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        check(key, value, whole and value >= least, f"a whole number >= {least}")
