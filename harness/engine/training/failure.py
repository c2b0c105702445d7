"""A rank's failure, as its records tell it: in one line, with a traceback where that helps."""

import traceback
from collections.abc import Iterator

from compressors.checks import BadPart
from harness.config.parts import OURS
from harness.config.run import Run
from harness.config.typed import class_paths
from harness.records.checkpoint import BadCheckpoint

NEVER_PARTS = {*OURS, "torch"}  # packages that every program calls


def causes(error: BaseException) -> list[BaseException]:
    """Return `error` and what it was raised from, the first cause last."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    return chain


def in_a_line(error: BaseException, run: Run) -> str:
    """Say what the first cause of `error` was, and in which part of one's own it was raised."""
    if refusal := _refusal(error):
        return str(refusal).strip().splitlines()[0]
    cause = causes(error)[-1]
    first = (str(cause).strip().splitlines() or [""])[0]
    place = _in_a_part(cause, run)
    return f"{type(cause).__name__}: {first}" + (f", in {place}" if place else "")


def traceback_of(error: BaseException) -> str:
    """Return the traceback of `error` for the user; "" where one line says it all."""
    return "" if _refusal(error) else "".join(traceback.format_exception(error))


def _refusal(error: BaseException) -> BaseException | None:
    """Return the cause whose message names everything: of a bad part or a bad checkpoint."""
    refusals = [cause for cause in causes(error) if isinstance(cause, (BadPart, BadCheckpoint))]
    return refusals[0] if refusals else None


def _in_a_part(cause: BaseException, run: Run) -> str:
    """Return the function of a part from outside in which `cause` was raised; "" if in none.

    What a part calls of the harness, such as a collective, may fail through no fault of the part.
    """
    place, paths = "", class_paths(dict(run.deciding))
    kinds = {type(run.profile).__module__, type(run.network).__module__}
    outside = {path.partition(".")[0] for path in paths | kinds} - NEVER_PARTS
    for module, function in _calls(cause):
        top = module.partition(".")[0]
        if top == "harness":
            place = ""
        elif top in outside and not place:
            place = f"{module}.{function}"
    return place


def _calls(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield module and function of each call of the traceback, the one that raised last."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        function = frame.f_code.co_qualname.partition(".<locals>")[0]
        yield str(frame.f_globals.get("__name__")), function
