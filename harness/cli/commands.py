"""Table of the commands and their arguments, for the parser in `main` and for `--help`."""

from typing import NamedTuple


class CommandHelp(NamedTuple):
    """Description of one command, which is the module of this package with its name."""

    about: str
    flags: dict[str, str] = {}  # description by `--flag [VALUE]`
    words: str = ""  # names of its positional words; [WORD] is optional
    overrides: bool = True  # True: accepts KEY=VALUE like a run


COMMANDS = {
    "run": CommandHelp(
        "Train, prove the network, and report: what `--help` without a command shows."
    ),
    "quickstart": CommandHelp(
        "Show who is first on links of eight rates, then prove it over packets.\n"
        "strict=true exits with 3 if a run of the proof does not count."
    ),
    "advise": CommandHelp(
        "Find the compressor and controller that reach target.value= soonest on this network.\n"
        "A plan leaves a short list, a race in virtual time drops the slow, finalists run over\n"
        "packets. The same command goes on where it was stopped.",
        {
            "--pairs N": "seeds of the race, 2 to 10; default: 6",
            "--virtual-only": "no finalists over packets",
            "--exhaustive": "also run all that fits, with other seeds: the regret of the answer",
        },
    ),
    "around": CommandHelp("Put any trainer, unmodified, under proven links: COMMAND after --."),
    "report": CommandHelp(
        "Compare the runs in FOLDER: results, an experiment, or a run directory.",
        {
            "--baseline METHOD": "normalise by it; default: the dense one",
            "--agreement": "only virtual time against real packets",
            "--pdf": "write figures as pdf beside svg",
            "--style FILE": "file with names, colours, order, width, title",
            "--out FOLDER": "where to write; default: FOLDER/report",
            "--status": "say how far the sweep in FOLDER is; in a terminal until it has ended",
            "--once": "with --status: in a terminal too",
        },
        words="FOLDER",
        overrides=False,
    ),
    "doctor": CommandHelp(
        "Say what this machine can emulate, and how to enable the rest. The status is 0 if the\n"
        "default run, or the one that KEY=VALUE give, can run here.",
        {
            "--json": "one JSON object, for machines",
            "--contract": "try the parts that GROUP=CHOICE name by the laws of their kind",
            "--clean": "restore real interfaces, and remove files, that killed runs left",
            "--dry-run": "with --clean: only say what it would do",
            "--ledger FOLDER": "with --clean: of ledgers; default: /var/lib/gradnet",
            "--results FOLDER": "with --clean: root of the runs; default: results",
            "--calibrate": "fit virtual time to this machine: network=calibrated",
            "--name NAME": "with --calibrate: of the choice that it writes to conf/",
            "--force": "with --calibrate: replace the file",
            "--only PARTS": "with --calibrate: of links,windows,compression; others stay",
            "--device KIND": "with --calibrate: what compression costs cuda or cpu",
            "--testbed FILE": "with --calibrate: fit testbeds of others to rows of theirs",
        },
    ),
    "study": CommandHelp("For maintainers: study reproduce | claims | fidelity | reference ..."),
}
WITH_OWN_ARGUMENTS = ("run", "quickstart", "around", "study")  # these parse their own arguments
