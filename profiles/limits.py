"""What a link may be given; refused where a profile is built, with key, value and range."""


def check_above_zero(**values: float) -> None:
    """Every value, by its key, is a positive finite number."""
    for key, value in values.items():
        if not (isinstance(value, (int, float)) and 0 < value < float("inf")):
            raise ValueError(f"{key} must be a number > 0, got {value!r}")


def check_path(delay_ms: float, jitter_ms: float, loss: float, reorder: float) -> None:
    """What a link does to packets beside its rate."""
    for key, value in (("delay_ms", delay_ms), ("jitter_ms", jitter_ms)):
        if not (isinstance(value, (int, float)) and 0 <= value < float("inf")):
            raise ValueError(f"{key} must be a number >= 0, got {value!r}")
    for key, value in (("loss", loss), ("reorder", reorder)):
        if not (isinstance(value, (int, float)) and 0 <= value < 1):
            raise ValueError(f"{key} must be in [0, 1), got {value!r}")
    if jitter_ms > delay_ms:
        raise ValueError(f"jitter_ms must be in [0, {delay_ms}] (delay_ms), got {jitter_ms}")
    if reorder and not delay_ms:
        raise ValueError(f"reorder must be 0 without a delay_ms to overtake, got {reorder}")
