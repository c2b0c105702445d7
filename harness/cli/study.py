"""Command `study NAME ...`: tools of maintainers for papers/ and the generated docs."""

import sys
from pathlib import Path

from harness.cli.arguments import Arguments, parse, usage
from harness.cli.commands import CommandHelp
from harness.config.typed import require

REFERENCE = CommandHelp("Write the reference pages of the docs to FOLDER.", {}, "FOLDER", False)
STUDIES = {
    "reproduce": "run the experiments of a paper, and write its page",
    "claims": "judge papers' claims by runs",
    "fidelity": "predict papers' timings from testbeds",
    "reference": "write the reference pages of the docs",
}


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names; return its status, or raise BadSetting."""
    name, *rest = arguments or [""]
    if name == "--help":
        print("gradnet study COMMAND ...\n")
        print("\n".join(f"  {each:10} {said}" for each, said in STUDIES.items()))
        return 0
    require(name in STUDIES, "study", name, f"one of {', '.join(STUDIES)}")
    if name == "claims":
        from harness.cli import claims

        given = _given(name, claims.COMMAND, rest)
        return 0 if given is None else claims.main(given)
    if name == "reference":
        from harness.cli import reference

        if (given := _given(name, REFERENCE, rest)) is not None:
            reference.write(Path(given.words[0]))
        return 0
    sys.argv = [f"study {name}", *rest]
    if name == "reproduce":
        from harness.reproduce import __main__ as reproduce

        return reproduce.main()
    from harness.fidelity import __main__ as fidelity

    return fidelity.main()


def _given(name: str, command: CommandHelp, arguments: list[str]) -> Arguments | None:
    """Parse the arguments of a study's command. With --help print its help and return None."""
    if "--help" in arguments:
        print(usage(f"study {name}", command))
        return None
    return parse(arguments, command)
