"""Put any trainer, unmodified, under proven links.

python -m harness.around [GROUP=CHOICE] [KEY=VALUE] -- COMMAND [ARGUMENT ...]

The command is started once in every node's namespace, told of the others by the variables that
torchrun and env:// read, and by {rank} {world} {master} {port} {seed} in its words. The same
command line finds its finished run.
"""

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from harness.around.nodes import Nodes
from harness.around.settings import OWN, SHARED, composed
from harness.cli.run_queue import in_turn
from harness.runner import run
from profiles import recordings

PROGRAM = "harness.around.supervise"


class Echo:
    """Printer of the output that the command writes on node 0."""

    def __init__(self, run_dir: Path) -> None:
        self._log, self._offset = Nodes.log(run_dir, 0), 0
        self._run_dir = run_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with suppress(OSError):
            self.update()

    def update(self) -> None:
        """Print new output. Raise FileNotFoundError if the run was removed."""
        (self._run_dir / "status.json").stat()
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            self._offset = min(self._offset, file.seek(0, os.SEEK_END))  # a long log is shortened
            file.seek(self._offset)
            came = file.read()
        self._offset += len(came)
        with suppress(OSError):  # the terminal may be gone
            sys.stdout.write(came.decode(errors="replace"))
            sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run a command over shaped links. Return 0, 1 if a run failed, or 3 if one is not valid."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--help" in before:
        own = "\n".join(f"  {key}= {told}" for key, told in OWN.items())
        shared = f"and of `python -m harness --help`: {', '.join(SHARED)}, emulation.dilation"
        print(f"{(__doc__ or '').strip()}\n\n{own}\n{shared}")
        return 0
    do = partial(run.supervised, show=Echo, program=PROGRAM, variables={})
    runs = composed(arguments)
    for note in recordings.notes(*(settings.build("profile") for settings in runs)):
        print(note)
    return in_turn(runs, partial(run.done_once, do=do, alone=True))
