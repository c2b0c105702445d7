"""Parser of all commands: words, KEY=VALUE overrides and flags."""

from collections.abc import Sequence
from typing import NamedTuple

from harness.cli.commands import CommandHelp
from harness.config.typed import BadSetting

MULTIRUN = ("-m", "--multirun")  # with overrides: one run for each of several values


class Arguments(NamedTuple):
    """Arguments of one command line, sorted by kind. A flag without a value has ""."""

    words: list[str]
    overrides: list[str]  # KEY=VALUE, and -m
    flags: dict[str, str]

    def number(self, flag: str, default: int, least: int, most: int) -> int:
        """Return a flag's whole number. Raise BadSetting unless it is in [least, most]."""
        text = self.flags.get(flag, str(default))
        if not (text.isdecimal() and least <= int(text) <= most):
            raise BadSetting(f"{flag} must be a whole number in [{least}, {most}], got {text!r}")
        return int(text)

    def choice(self, flag: str, choices: Sequence[str]) -> str | None:
        """Return a flag's value, or None; raise BadSetting if it is not in `choices`."""
        value = self.flags.get(flag)
        if value is not None and value not in choices:
            raise BadSetting(f"{flag} must be one of {', '.join(choices)}, got {value!r}")
        return value


def parse(arguments: Sequence[str], command: CommandHelp) -> Arguments:
    """Sort `arguments` into the words, overrides and flags that `command` accepts.

    For a command without overrides KEY=VALUE is a word. A flag described as "with --other: ..."
    needs that flag. Raise BadSetting for any other argument, and for a missing word.
    """
    words, overrides = command.words, command.overrides
    known = dict(flag.partition(" ")[::2] for flag in command.flags)
    found, waiting = Arguments([], [], {}), list(arguments)
    while waiting:
        argument = waiting.pop(0)
        flag, sign, value = argument.partition("=")
        if overrides and argument in MULTIRUN:
            found.overrides.append(argument)
        elif argument[:1] == "-" and len(argument) > 1:
            if flag not in known:
                raise BadSetting(f"{flag} is no flag here; flags: {', '.join(known) or 'none'}")
            if bool(sign) > bool(known[flag]):
                raise BadSetting(f"{flag} has no value, got {value!r}; write {flag}")
            if known[flag] and not sign:
                value = waiting.pop(0) if waiting and waiting[0][:1] != "-" else ""
            if known[flag] and not value:
                raise BadSetting(f"{flag} needs a value; write {flag} {known[flag]}")
            found.flags[flag] = value
        elif overrides and (sign or not words):
            found.overrides.append(argument)
        else:
            found.words.append(argument)
    for described, about in command.flags.items():
        flag, other = described.partition(" ")[0], about.removeprefix("with ").partition(":")[0]
        if flag in found.flags and other in known and other not in found.flags:
            raise BadSetting(f"{flag} needs {other} beside it; write {other} {flag}")
    wanted = words.split()
    if len(found.words) > len(wanted):
        allowed = words or "no words"
        raise BadSetting(f"it takes {allowed}, got {found.words[len(wanted)]!r} beside")
    if missing := [word for word in wanted[len(found.words) :] if word[0] != "["]:
        raise BadSetting(f"{missing[0]} must be given")
    return found


def usage(name: str, command: CommandHelp) -> str:
    """Return the text that `--help` prints for a command."""
    takes = " ".join(filter(None, [command.words, "[KEY=VALUE ...]" * command.overrides]))
    width = max(map(len, command.flags), default=0)
    flags = [f"  {flag:{width}}  {said}" for flag, said in command.flags.items()]
    return "\n".join([f"gradnet {name} {takes}", "", command.about, "", *flags]).rstrip()
