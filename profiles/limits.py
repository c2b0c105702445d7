"""Range checks for the arguments of profiles, which call them when they are built.

Each check raises ValueError with the key, the allowed range and the value.
"""

import sys
from collections.abc import Sequence
from typing import Any

LEAST_MBIT = 0.001  # a packet of 1,500 bytes takes 12 s; slower links are not shaped either
MOST_MBIT = 1_000_000  # 1 Tbit/s
MOST_S = 1e9  # 30 years
LEAST_LASTING_S = 0.001  # shorter than any look at a profile; more of them than memory holds
MOST_DELAY_MS = 60_000  # a minute


def is_number(value: Any) -> bool:
    """Return True for a finite float, or an int that fits into a float; False for a bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def check_mbit(**values: Any) -> None:
    """Raise ValueError, naming the key, for a rate that is not in [0.001, 1,000,000] Mbit/s."""
    for key, value in values.items():
        if not (is_number(value) and LEAST_MBIT <= value <= MOST_MBIT):
            allowed = f"[{LEAST_MBIT}, {MOST_MBIT}]"
            raise ValueError(f"{key} must be a number in {allowed}, got {value!r}")


def check_lasting(**values: Any) -> None:
    """Raise ValueError for a duration that is not a number of seconds in [0.001, 1e9].

    `values` maps the name of each duration, such as `hold_s`, to its value. The message names the
    key, the range and the value.
    """
    for key, value in values.items():
        check_between(LEAST_LASTING_S, MOST_S, **{key: value})


def check_between(least: float, most: float, **values: Any) -> None:
    """Raise ValueError, naming the key, for a value that is not a number in [least, most]."""
    for key, value in values.items():
        if not (is_number(value) and least <= value <= most):
            raise ValueError(f"{key} must be a number in [{least:g}, {most:g}], got {value!r}")


def check_share(**values: Any) -> None:
    """Raise ValueError, naming the key, for a value that is not a number in [0, 1)."""
    for key, value in values.items():
        if not (is_number(value) and 0 <= value < 1):
            raise ValueError(f"{key} must be a number in [0, 1), got {value!r}")


def check_order(**values: float) -> None:
    """Raise ValueError, naming both keys, if the first of the two values is the larger."""
    (low_key, low), (high_key, high) = values.items()
    if low > high:
        raise ValueError(f"{low_key} must be in (0, {high}] ({high_key}), got {low}")


def check_whole(least: int, most: float = float("inf"), **values: Any) -> None:
    """Raise ValueError, naming the key, for a value that is not an int in [least, most]."""
    allowed = f">= {least}" if most == float("inf") else f"in [{least}, {most}]"
    for key, value in values.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and least <= value <= most):
            raise ValueError(f"{key} must be a whole number {allowed}, got {value!r}")


def check_choice(choices: tuple[Any, ...], **values: Any) -> None:
    """Raise ValueError, naming the key, for a value that is not equal to one of `choices`.

    The types must be equal too, so `True` does not match the choice 1.
    """
    for key, value in values.items():
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            named = " or ".join(str(choice).lower() for choice in choices)
            raise ValueError(f"{key} must be {named}, got {value!r}")


def check_path(delay_ms: Any, jitter_ms: Any, loss: Any, reorder: Any) -> None:
    """Raise ValueError, naming the key, for path conditions that netem cannot emulate.

    Delay and jitter must be in [0, 60,000] ms, loss and reorder in [0, 1). The jitter may not
    exceed the delay. Reordering needs a delay.
    """
    check_between(0, MOST_DELAY_MS, delay_ms=delay_ms, jitter_ms=jitter_ms)
    check_share(loss=loss, reorder=reorder)
    if jitter_ms > delay_ms:
        raise ValueError(f"jitter_ms must be in [0, {delay_ms}] (delay_ms), got {jitter_ms}")
    if reorder and not delay_ms:
        raise ValueError(f"reorder must be 0 without a delay_ms to overtake, got {reorder}")


def check_profile(**values: Any) -> None:
    """Raise ValueError, naming the key, for a value without methods `link`, `flows`, `extremes`."""
    for key, value in values.items():
        if not all(callable(getattr(value, name, None)) for name in ("link", "flows", "extremes")):
            raise ValueError(f"{key} must be a profile (a section with _target_), got {value!r}")


def as_tuple(key: str, value: Any, of_what: str) -> tuple[Any, ...]:
    """Return the list `value`, which may be one of Hydra, as a tuple that can be hashed.

    Raise ValueError, with `key` and `of_what`, if it is empty, a string, or no sequence.
    """
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or not len(value):
        raise ValueError(f"{key} must be a list of {of_what}, got {value!r}")
    return tuple(value)
