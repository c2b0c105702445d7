"""Entry point of all commands: `gradnet [COMMAND] ...` or `python -m harness [COMMAND] ...`.

A command of `COMMANDS` is the module of this package with that name. It is imported on demand.
`--help`, `--version` and bad flags import neither Hydra nor torch.
"""

import logging
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from harness import __version__
from harness.cli import help
from harness.cli.arguments import parse, usage
from harness.cli.commands import COMMANDS, WITH_OWN_ARGUMENTS
from harness.cli.completion import script
from harness.config import search_path
from harness.config.typed import BadSetting
from harness.records.outputs import CannotWrite
from harness.runner import signals


def main(command: str = "") -> NoReturn:
    """Run the command line in `sys.argv` and exit with its status.

    `command` is given by modules such as `harness.report`. Otherwise the first word may name a
    command; the default is `run`. The status is 0 for success, 1 for a bad setting or a failed run,
    3 if a finished run is not valid, and 130 after Ctrl-C. A bad setting is printed in one line
    before anything starts.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    logging.getLogger("harness").setLevel(logging.INFO)
    signals.stop_in_order()
    arguments = sys.argv[1:]
    if not command:
        command = arguments.pop(0) if arguments[:1] and arguments[0] in COMMANDS else "run"
    try:
        sys.exit(_perform(command, arguments))
    except (BadSetting, CannotWrite) as error:
        sys.exit(f"harness{'' if command == 'run' else f' {command}'}: {error}")
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit()
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            print("interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


def _perform(command: str, arguments: list[str]) -> int:
    """Answer --help and the like, or call the command; return its exit status."""
    end = arguments.index("--") if "--" in arguments else len(arguments)  # end of our own options
    own = search_path.without_folders(arguments[:end])
    if "--version" in own:
        print(f"gradnet {__version__}")
        return 0
    if "--completion" in own:
        at = own.index("--completion")
        print(script("".join(own[at + 1 : at + 2]), tuple(COMMANDS)))
        return 0
    asks_help = bool({"-h", "--help"} & set(own))
    if asks_help and command == "run":
        print(help.shown(next((word for word in own if word[0] != "-"), None)))
        return 0
    if asks_help and command not in ("around", "study"):
        print(usage(command, COMMANDS[command]))
        return 0
    rest = arguments[end:]
    given: Any = [*own, *(["--help"] if asks_help else []), *rest]
    if command not in WITH_OWN_ARGUMENTS:
        given = parse([*own, *rest], COMMANDS[command])
    status: int = import_module(f"harness.cli.{command}").main(given)
    return status
