"""Description of a rank's failure for its records: one line, and a traceback where it helps."""

import traceback
from collections.abc import Iterator

from compressors.checks import BadPart
from harness.config.parts import OURS
from harness.config.run import Run
from harness.config.typed import class_paths
from harness.records.checkpoint import BadCheckpoint

NEVER_PARTS = {*OURS, "torch"}  # packages that every program calls


def causes(error: BaseException) -> list[BaseException]:
    """Return `error` and the chain of its causes. The first cause is last."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    return chain


def in_a_line(error: BaseException, run: Run) -> str:
    """Return one line on the first cause of `error`, and the user's part that raised it."""
    if refusal := _refusal(error):
        return str(refusal).strip().splitlines()[0]
    cause = causes(error)[-1]
    first = (str(cause).strip().splitlines() or [""])[0]
    place = _in_a_part(cause, run)
    return f"{type(cause).__name__}: {first}" + (f", in {place}" if place else "")


def traceback_of(error: BaseException) -> str:
    """Return the traceback of `error`, or "" if one line says everything."""
    return "" if _refusal(error) else "".join(traceback.format_exception(error))


def _refusal(error: BaseException) -> BaseException | None:
    """Return the first BadPart or BadCheckpoint in the chain. Its message needs no traceback."""
    refusals = [cause for cause in causes(error) if isinstance(cause, (BadPart, BadCheckpoint))]
    return refusals[0] if refusals else None


def _in_a_part(cause: BaseException, run: Run) -> str:
    """Return the function of a user's part in which `cause` was raised, or "" if in none.

    A call from a part into the harness, such as a collective, may fail without the part's fault.
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
    """Yield module and function of each call in the traceback. The one that raised is last."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        function = frame.f_code.co_qualname.partition(".<locals>")[0]
        yield str(frame.f_globals.get("__name__")), function
