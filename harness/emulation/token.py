"""The secret that the machines of a run share, from the environment or a file.

It is never taken from a command line, which every user of a machine can read.
"""

import os
from pathlib import Path

VARIABLE = "GRADNET_TOKEN"
LEAST = 16  # characters
OTHERS = 0o077  # permissions of users other than the owner
WANTED = (
    f"host needs a token of {LEAST} characters or more, the same on every machine: in the "
    f"environment as {VARIABLE} (export {VARIABLE}=$(openssl rand -hex 16)), or in a file that "
    "network.token names"
)


def of_run(file: str | None) -> str:
    """Return the token in `file`, or without a file in the environment.

    Raise ValueError if it is missing or too short, or if others may read the file.
    """
    if file is None:
        found, where = os.environ.get(VARIABLE, ""), VARIABLE
    else:
        found, where = _read(Path(file)), file
    if len(found) < LEAST:
        raise ValueError(f"{WANTED}; {where} has {len(found)} characters")
    return found


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & OTHERS:
            raise ValueError(f"token: others can read {path}; `chmod 600 {path}`")
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{WANTED}; {path}: {error}") from error
