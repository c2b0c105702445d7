"""What a profile may be given; refused where it is built, with key, value and range."""

import sys
from collections.abc import Sequence
from typing import Any

LEAST_MBIT = 0.001  # a packet of 1,500 bytes takes 12 s; slower links are not shaped either
MOST_MBIT = 1_000_000  # 1 Tbit/s
MOST_S = 1e9  # 30 years
LEAST_LASTING_S = 0.001  # shorter than any look at a profile; more of them than memory holds
MOST_DELAY_MS = 60_000  # a minute


def is_number(value: Any) -> bool:
    """A finite float or an int that fits in one; a bool is neither."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def check_mbit(**values: Any) -> None:
    """Refuse, with ValueError, values that are no rate."""
    for key, value in values.items():
        if not (is_number(value) and LEAST_MBIT <= value <= MOST_MBIT):
            allowed = f"[{LEAST_MBIT}, {MOST_MBIT}]"
            raise ValueError(f"{key} must be a number in {allowed}, got {value!r}")


def check_lasting(**values: Any) -> None:
    """Refuse, with ValueError, lengths of a repeated event that are not positive seconds."""
    for key, value in values.items():
        check_between(LEAST_LASTING_S, MOST_S, **{key: value})


def check_between(least: float, most: float, **values: Any) -> None:
    """Refuse, with ValueError, values that are not numbers in [least, most]."""
    for key, value in values.items():
        if not (is_number(value) and least <= value <= most):
            raise ValueError(f"{key} must be a number in [{least:g}, {most:g}], got {value!r}")


def check_share(**values: Any) -> None:
    """Refuse, with ValueError, values outside [0, 1)."""
    for key, value in values.items():
        if not (is_number(value) and 0 <= value < 1):
            raise ValueError(f"{key} must be a number in [0, 1), got {value!r}")


def check_order(**values: float) -> None:
    """Refuse, with ValueError, two numbers above 0 of which the first exceeds the second."""
    (low_key, low), (high_key, high) = values.items()
    if low > high:
        raise ValueError(f"{low_key} must be in (0, {high}] ({high_key}), got {low}")


def check_whole(least: int, most: float = float("inf"), **values: Any) -> None:
    """Refuse, with ValueError, values that are not whole numbers in [least, most]."""
    allowed = f">= {least}" if most == float("inf") else f"in [{least}, {most}]"
    for key, value in values.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and least <= value <= most):
            raise ValueError(f"{key} must be a whole number {allowed}, got {value!r}")


def check_choice(choices: tuple[Any, ...], **values: Any) -> None:
    """Refuse, with ValueError, values that are none of `choices`, or of another type."""
    for key, value in values.items():
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            named = " or ".join(str(choice).lower() for choice in choices)
            raise ValueError(f"{key} must be {named}, got {value!r}")


def check_path(delay_ms: Any, jitter_ms: Any, loss: Any, reorder: Any) -> None:
    """Refuse, with ValueError, path conditions that netem could not play."""
    check_between(0, MOST_DELAY_MS, delay_ms=delay_ms, jitter_ms=jitter_ms)
    check_share(loss=loss, reorder=reorder)
    if jitter_ms > delay_ms:
        raise ValueError(f"jitter_ms must be in [0, {delay_ms}] (delay_ms), got {jitter_ms}")
    if reorder and not delay_ms:
        raise ValueError(f"reorder must be 0 without a delay_ms to overtake, got {reorder}")


def check_profile(**values: Any) -> None:
    """Refuse, with ValueError, values that are no profile."""
    for key, value in values.items():
        if not all(callable(getattr(value, name, None)) for name in ("link", "flows", "extremes")):
            raise ValueError(f"{key} must be a profile (a section with _target_), got {value!r}")


def as_tuple(key: str, value: Any, of_what: str) -> tuple[Any, ...]:
    """A list, Hydra's too, as a tuple that can be hashed."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or not len(value):
        raise ValueError(f"{key} must be a list of {of_what}, got {value!r}")
    return tuple(value)
