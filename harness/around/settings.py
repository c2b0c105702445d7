"""Command line of `harness.around`: network overrides, `--`, and the program to start.

The command's own keys are parsed without Hydra's grammar, which would reject regular expressions.
"""

import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.around import named_files
from harness.config import sweep
from harness.config.keys import Emulation, Target, Timeouts
from harness.config.refused import in_a_line, keys
from harness.config.run import Run
from harness.config.settings import OF_THE_EDGE, BadSetting, Settings
from harness.config.typed import is_section, located, of_part, require
from harness.emulation.errors import NetworkError
from harness.emulation.topology import Topology
from harness.records.metrics import beyond
from profiles.base import WAYS, Profile

EXPERIMENT = "around"
FIRST_BYTE = "first_byte"
OF_A_STEP = ("step", "epoch", "loss", "time", "samples")  # groups of a pattern, no metrics
# Keys of our runs that runs of a foreign command have too.
SHARED = (
    "workers", "workers_per_node", "seed", "network_seed", "target", "timeouts", "network",
    "profile", "experiment", "results", "rerun", "report", "tracker",
)  # fmt: skip
KEPT = (*SHARED, "emulation")
OWN = {
    "name": "what the command is called in results",
    "start": "first_byte, or a pattern: the profile's clock starts at the first line that has it",
    "metrics": "a pattern of node 0's lines, with groups: step, epoch, loss, time, samples, others",
    "tensorboard": "a folder of event files that the command writes: metrics is looked for in each "
    "of node 0's scalars, as `train/loss 0.25`; without it whatever is called loss counts",
    "samples": "of a step, of all nodes together; else throughput counts steps",
    "sends_bytes": "that every node sends at least in a step, if you know: fewer are a way around",
}
WORDS = named_files.WORDS
OPTION = re.compile(r"-+\w[\w-]*=?")
LOSS = r"loss\S* (?P<loss>\S+)"  # of a scalar's tag and value
MOST_LABEL = 60  # characters
NEAR = 3


@dataclass(frozen=True)
class Command:
    """A foreign command, and how its output is read."""

    words: tuple[str, ...]
    start: str  # FIRST_BYTE or a pattern
    metrics: str | None
    tensorboard: str | None  # folder of event files, of which metrics are then taken
    samples: int | None
    sends_bytes: int | None

    @cached_property
    def metric(self) -> str:
        """First metric that the pattern names, by default the loss."""
        names = re.compile(self.metrics or "").groupindex
        return next((name for name in names if name not in OF_A_STEP), "loss")

    def of_node(self, node: int, nodes: int, address: str, port: int, seed: int) -> list[str]:
        """Return its words on one node."""
        said: dict[str, object] = {"rank": node, "node": node, "world": nodes, "nodes": nodes}
        said |= {"master": address, "port": port, "seed": seed}
        return [WORDS.sub(lambda found: str(said[found[1]]), word) for word in self.words]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One run of a foreign command, checked."""

    label: str
    seed: int
    nodes: int
    workers_per_node: int
    target: Target
    emulation: Emulation
    timeouts: Timeouts
    network: Topology
    profile: Profile
    command: Command


def composed(arguments: Sequence[str]) -> list[Settings]:
    """Return settings of every run of a command line, each checked. BadSetting is one line."""
    if "--" not in arguments:
        raise BadSetting("a command must come after --: gradnet around workers=2 -- torchrun x.py")
    at = list(arguments).index("--")
    said, words = list(arguments[:at]), list(arguments[at + 1 :])
    if not words:
        raise BadSetting("a command must come after --, got nothing")
    if shutil.which(words[0]) is None:
        raise BadSetting(f"{words[0]}: command not found, or not executable")
    own = {key: value for key, _, value in (each.partition("=") for each in said) if key in OWN}
    command = _command(words, own)
    overrides = [each for each in said if each.partition("=")[0] not in OWN]
    for each in overrides:
        _require_known(each)
    return [_settings(choice, command, own) for choice in _choices(overrides)]


def _command(words: list[str], own: dict[str, str]) -> dict[str, Any]:
    """Return section `around` for program `words` and options `own`; BadSetting if invalid."""
    start, metrics = own.get("start", FIRST_BYTE), own.get("metrics")
    if "tensorboard" in own:
        metrics = metrics or LOSS
        _require_event_files(own["tensorboard"], metrics)
    for key, pattern in (("start", start), ("metrics", metrics)):
        try:
            found = re.compile(pattern or "")
        except re.error as error:
            raise BadSetting(
                f"{key} must be a regular expression, got {pattern!r}: {error}"
            ) from None
        if key == "metrics" and pattern is not None and not found.groupindex:
            example = r"'step (?P<step>\d+) loss (?P<loss>\S+)'"
            raise BadSetting(f"metrics must have named groups, as {example}, got {pattern!r}")
        if key == "metrics" and pattern is not None and found.search(""):
            raise BadSetting(
                f"metrics must not match an empty line, got {pattern!r}; name some text that only "
                "the lines of steps have"
            )
    more = {
        key: _whole(key, own[key]) if key in own else None for key in ("samples", "sends_bytes")
    }
    return {
        "words": words,
        "name": own.get("name") or _name(words),
        "start": start,
        "metrics": metrics,
        "tensorboard": own.get("tensorboard"),
        **more,
        "files": named_files.digests(words),
    }


def _require_event_files(folder: str, metrics: str) -> None:
    """Raise BadSetting if event files cannot be read, or cannot provide `metrics`."""
    if find_spec("tensorboard") is None:
        raise BadSetting(
            "tensorboard= needs the package tensorboard, which is not installed; write "
            "pip install 'gradnet[tensorboard]'"
        )
    if not folder or (Path(folder).exists() and not Path(folder).is_dir()):
        raise BadSetting(f"tensorboard must be a folder, which may be made yet, got {folder!r}")
    if known := re.findall(r"\?P<(step|time)>", metrics):
        raise BadSetting(
            f"metrics must have no group {known[0]} with tensorboard, whose files have it, got "
            f"{metrics!r}"
        )


def _whole(key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise BadSetting(f"{key} must be a whole number of 1 or more, got {text!r}")
    return int(text)


def _name(words: list[str]) -> str:
    """Return a name made from the command: its script and arguments that are equal on all nodes."""
    at = next((n for n, word in enumerate(words) if word.endswith((".py", ".sh"))), 0)
    told: list[str] = []
    for word in (Path(words[at]).stem, *words[at + 1 :]):
        if not WORDS.search(word):
            told.append(word)
        elif told and OPTION.fullmatch(told[-1]):
            told.pop()
    name = re.sub(r"[^A-Za-z0-9.]+", "_", "_".join(told)).strip("_")
    return name[:MOST_LABEL] or "command"


def _require_known(override: str) -> None:
    """Raise BadSetting for a key that does not belong to links, or for text that is no override."""
    if override in sweep.MULTIRUN:
        return
    if override[:1] == "-":
        raise BadSetting(f"options must be of --help and -m, got {override}")
    key = re.split(r"[=@]", override.lstrip("+~"))[0]
    top = re.split(r"[./]", key)[0]
    if top in SHARED or key == "emulation.dilation":
        return
    known = [*OWN, *SHARED, "emulation.dilation"]
    if key in keys() or top in keys():
        raise BadSetting(f"{override}: {top} is the command's own; keys here: {', '.join(known)}")
    near = get_close_matches(key, known, NEAR, cutoff=0.5)
    raise BadSetting(
        f"{override}: there is no key {key!r}; "
        + (f"did you mean {', '.join(near)}" if near else f"keys: {', '.join(known)}")
    )


def _choices(overrides: list[str]) -> list[list[str]]:
    with in_a_line(overrides), sweep.hydra():
        return sweep.choices(overrides)


def _settings(choice: list[str], command: dict[str, Any], own: dict[str, str]) -> Settings:
    """Return the settings of one run: the links that `choice` configures, and the command."""
    with in_a_line(choice), sweep.hydra():
        loaded = sweep.load(choice)
        if target := (loaded.get("network") or {}).get("_target_"):
            _require_nodes({"_target_": target})
        told = sweep.plain_settings(loaded).config
        parsed = OverridesParser.create().parse_overrides(choice)
    config = {key: told[key] for key in KEPT} | {"plan": False, "draw": False, "around": command}
    if "experiment" not in map(sweep.key_of, parsed):
        config["experiment"] = EXPERIMENT
    if isinstance(config["target"], dict) and config["target"]["metric"] is None:
        config["target"]["metric"] = Command(**_fields(command)).metric
    places = ("results", "rerun", "report", "tracker")  # which do not change the run
    words = [each for each in choice if each.partition("=")[0] not in places]
    words += [f"{key}={value}" for key, value in own.items()]
    typed = shlex.join([*words, "--", *command["words"]])
    more = {"method": {"name": command["name"]}, "typed": f"python -m harness.around {typed}"}
    settings = Settings(config | more)
    with in_a_line(choice):
        checked(settings)
    return settings


def _fields(section: dict[str, Any]) -> dict[str, Any]:
    kept = {key: section[key] for key in OWN if key != "name"}
    return {"words": tuple(section["words"])} | kept


def asked(settings: Settings) -> Asked:
    """Return the run of a configuration. Raise BadSetting at the first invalid value."""
    hints = get_type_hints(Run, include_extras=True)
    plain = {key: hints[key] for key in ("seed", "network_seed", "workers", "workers_per_node")}
    settings.require_fit("", plain | OF_THE_EDGE)
    _require_nodes(settings["network"])
    network = settings.build("network")
    each = settings["workers_per_node"]
    require(settings["workers"] % each == 0, "workers_per_node", each, "a divisor of workers")
    return Asked(
        label=settings["method.name"],
        seed=settings["seed"],
        nodes=settings["workers"] // each,
        workers_per_node=each,
        target=settings.section_of("target", Target),
        emulation=settings.section_of("emulation", Emulation),
        timeouts=settings.section_of("timeouts", Timeouts),
        network=network,
        profile=settings.build("profile"),
        command=Command(**_fields(settings["around"])),
    )


def _require_nodes(section: Any) -> None:
    """Raise BadSetting for a network whose nodes have no namespaces of their own."""
    kind = located(section["_target_"]) if is_section(section) else Topology
    if not issubclass(kind, Topology):
        why = "on real interfaces its bytes could not be told from others'"
        if getattr(kind, "in_process", False):
            why = "virtual time has no packets that a command could send"
        name = kind.__name__.lower()
        raise BadSetting(f"network must be netns, dumbbell or wan, got {name}: {why}")


def checked(settings: Settings) -> Asked:
    """Build the run and check that its network can come up. Raise BadSetting if it cannot."""
    run = asked(settings)
    value, metric = run.target.value, run.target.metric or ""
    out = "" if value is None else beyond(metric, value)
    require(not out, "target.value", value, out)
    network, of_links = run.network, (run.nodes, run.profile, run.emulation.dilation)
    with of_part("profile", ValueError):
        for node in range(run.nodes):
            for way in WAYS:
                run.profile.link(0.0, node, way)
    with of_part("network", ValueError, NetworkError, OSError):
        network.check(*of_links)
        network.check_followed(*of_links)
    if said := network.refusal():
        raise BadSetting(f"network: this machine forbids its namespaces: {said}")
    return run
