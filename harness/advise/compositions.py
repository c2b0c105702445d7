"""Compositions that fit a workload: presets, and uniform ones at some densities."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from harness.config import sweep
from harness.config.label import ALLREDUCE, FIXED
from harness.config.network import CALIBRATED
from harness.config.parts import has_level
from harness.config.refused import in_a_line, no_choice
from harness.config.run import Run
from harness.config.scales import chosen
from harness.config.search_path import choices
from harness.config.settings import BadSetting, Settings
from harness.reporting.analysis.regret import ORACLE
from harness.validation import checked

DENSITIES = (0.1, 0.01, 0.001)  # of uniform methods, as studies of them compare
TWIN = CALIBRATED  # packets on this machine, without other programs
STAR = "simulated"
OURS = ("seed", "comparison", "seeds", "plan", "rerun")  # keys that the race sets itself


class Contender(NamedTuple):
    """A method by its overrides, and the settings of its run of seed 0."""

    overrides: tuple[str, ...]
    settings: Settings

    @property
    def label(self) -> str:
        return str(self.settings["method.name"])


@dataclass(frozen=True)
class Question:
    """A workload, a network and a target, which every composition shares."""

    overrides: tuple[str, ...]  # of each run, without method and seed
    methods: tuple[str, ...]  # presets that take part
    packets: tuple[str, ...] | None  # overrides of runs over packets; None: there are none
    why_not: str = ""  # there are no packets
    _known: dict[tuple[object, ...], Settings] = field(default_factory=dict, compare=False)

    def settings(self, method: Sequence[str], seed: int, over_packets: bool = False) -> Settings:
        """Return settings of one run. Raise BadSetting if the method does not compose."""
        key = (*method, seed, over_packets)
        if key not in self._known:
            shared = self.packets if over_packets else self.overrides
            asked = [*(shared or ()), *method, f"seed={seed}"]
            with in_a_line(asked), sweep.hydra():
                self._known[key] = sweep.plain_settings(sweep.load(asked))
        return self._known[key]

    def without_packets(self, why_not: str) -> "Question":
        return replace(self, packets=None, why_not=why_not)

    @property
    def name(self) -> str:
        return str(self.dense().settings["experiment"])

    def check(self) -> Run:
        """Return the dense run. Raise BadSetting if the question does not suit it."""
        return checked(self.dense().settings)

    def dense(self) -> Contender:
        method = (f"method={ALLREDUCE}",)
        return Contender(method, self.settings(method, 0))

    def compositions(self) -> dict[str, Contender | str]:
        """Return every composition but dense by name, or why it does not take part."""
        found: dict[str, Contender | str] = {}
        for preset in self.methods:
            if preset == ALLREDUCE:
                continue
            try:
                found |= {each.label: each for each in self._of(preset)}
            except BadSetting as error:
                found[preset] = str(error)
        return found

    def _of(self, preset: str) -> Iterator[Contender]:
        """Return a preset, and uniform ones at each of DENSITIES. BadSetting if it does not fit."""
        plain = Contender((f"method={preset}",), self.settings((f"method={preset}",), 0))
        if why := self._unlike(plain.settings):
            raise BadSetting(why)
        checked(plain.settings)
        yield plain
        for density in DENSITIES if _is_uniform(plain.settings) else ():
            method = (*plain.overrides, f"controller.density={density}")
            yield Contender(method, self.settings(method, 0))

    def _unlike(self, settings: Settings) -> str:
        """Name the settings by which a method would answer another question. Empty if none."""
        if settings["controller._target_"].rpartition(".")[2].lower() == ORACLE:
            return "it knows the profile, which no method can"
        base, apart = self.dense().settings.config, (*sweep.OF_A_METHOD, "method")
        changed = [key for key in base if key not in apart and settings.config[key] != base[key]]
        return f"it needs another {', '.join(changed)}" if changed else ""


def _is_uniform(settings: Settings) -> bool:
    fixed = settings["controller._target_"] == FIXED
    return fixed and has_level(settings["compressor._target_"])


def question(arguments: Sequence[str]) -> Question:
    """Parse the question from overrides of a run; BadSetting if no race can answer it."""
    with in_a_line(arguments):
        given = {sweep.key_of(each): each for each in _parsed(arguments)}
        _check_keys(given)
        asked = chosen(_without(arguments, "method"))
        with sweep.hydra():
            config = sweep.load(asked)
            named = config.hydra.runtime.choices
            settings = sweep.plain_settings(config)
    if settings["target.value"] is None:
        raise BadSetting("target.value must be given: write target.value= and what to reach")
    shared = _shared(asked, given, settings, f"{named.model}_{named.profile}")
    methods = given["method"].value() if "method" in given else None
    virtual, packets, why_not = _worlds(shared, settings)
    return Question(virtual, _presets(methods), packets, why_not)


def _parsed(arguments: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(arguments))


def _without(arguments: Sequence[str], key: str) -> list[str]:
    return [each for each in arguments if each.partition("=")[0] != key]


def _check_keys(given: dict[str, Override]) -> None:
    for key, each in given.items():
        if key.partition(".")[0] in sweep.OF_A_METHOD and key != "method":
            raise BadSetting(f"{key} is what is looked for; method=A,B names presets to choose of")
        if key in OURS:
            raise BadSetting(f"{key} is of the race, which runs several seeds: write --pairs")
        if key != "method" and each.is_sweep_override():
            raise BadSetting(f"{each.input_line}: one question at a time, so one value")


def _shared(
    asked: list[str], given: dict[str, Override], settings: Settings, name: str
) -> list[str]:
    """Return the overrides of every run: paced if the model has times, and ended at the target."""
    more = [f"results={settings['results']}/advise", "report=false"]
    if "experiment" not in given:
        more.append(f"experiment={name}_{settings['target.value']}")
    if "target.ends_run" not in given:
        more.append("target.ends_run=true")
    times = settings["model"].get("times")
    if "emulation.compute" not in given and times and settings["emulation.compute"] == "measured":
        more.append("emulation.compute=paced")
    return [*_without(_without(asked, "results"), "report"), *more]


def _worlds(
    shared: list[str], settings: Settings
) -> tuple[tuple[str, ...], tuple[str, ...] | None, str]:
    """Return overrides for virtual time, overrides for packets or None, and why there are none.

    Raise BadSetting if the network of `settings` has no counterpart in virtual time.
    """
    network = settings.build("network")
    if network.in_process:
        return tuple(shared), None, "virtual time is what was asked for"
    if not (twin := getattr(network, "twin", "")):
        raise BadSetting(f"network must be netns, dumbbell, or virtual: {TWIN} or {STAR}")
    twin = TWIN if twin == STAR else twin
    virtual = (*_without(shared, "network"), f"network={twin}")
    refusal = network.refusal()
    return virtual, None if refusal else tuple(shared), refusal


def _presets(asked: object) -> tuple[str, ...]:
    """Return the presets that `asked` names, all for None; BadSetting for an unknown name."""
    known = list(choices("method"))
    if asked is None:
        return tuple(known)
    names = [str(each) for each in getattr(asked, "list", [asked])]
    for each in names:
        if each not in known:
            raise BadSetting(no_choice(f"method/{each}", known))
    return tuple(names)
