"""The 95 % t interval of two values, by hand."""

T = 12.7062  # Student's t of one degree of freedom that 95 % stay within


def of_two(one: float, other: float) -> tuple[float, float]:
    mean, half = (one + other) / 2, T * abs(one - other) / 2
    return mean - half, mean + half
