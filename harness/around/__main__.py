"""Put any trainer, unmodified, under proven links.

python -m harness.around [GROUP=CHOICE] [KEY=VALUE] -- COMMAND [ARGUMENT ...]

The command is started once in every node's namespace, told of the others by the variables that
torchrun and env:// read, and by {rank} {world} {master} {port} {seed} in its words. The same
command line finds its finished run.
"""

import logging
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from harness import signals
from harness.around.nodes import Nodes
from harness.around.settings import OWN, SHARED, composed
from harness.config.settings import BadSetting
from harness.endings import in_turn
from harness.runner import run
from profiles import recordings

PROGRAM = "harness.around.supervise"
log = logging.getLogger("harness")


class Echo:
    """Printer of what the command writes on node 0."""

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


def main() -> int:
    """Run the command.

    Exit status 1 for a bad setting or failed run, 3 for one that is not valid.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    log.setLevel(logging.INFO)
    signals.stop_in_order()
    try:
        arguments = sys.argv[1:]
        before = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if {"-h", "--help"} & set(before):
            print(_help())
            return 0
        do = partial(run.supervised, show=Echo, program=PROGRAM, variables={})
        runs = composed(arguments)
        for note in recordings.notes(*(settings.build("profile") for settings in runs)):
            print(note)
        return in_turn(runs, partial(run.done_once, do=do, alone=True))
    except BadSetting as error:
        print(f"around: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        with suppress(OSError):
            print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def _help() -> str:
    own = "\n".join(f"  {key}= {told}" for key, told in OWN.items())
    shared = f"and of `python -m harness --help`: {', '.join(SHARED)}, emulation.dilation"
    return f"{(__doc__ or '').strip()}\n\n{own}\n{shared}"


if __name__ == "__main__":
    sys.exit(main())
