"""The plan of a paper: its experiments and their sweeps, from a study's reproduce.yaml."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.config import plain_yaml
from harness.config.scales import Described, compose, describe
from harness.config.search_path import readable
from harness.config.settings import BadSetting, Settings
from harness.predict.plan import deciding
from harness.studies import studies
from harness.validation import checked

KEYS = ("title", "claims", "experiments", "sweeps")
MAY = ("quick", "figures")  # optional keys
QUICK = "scale=quick"  # fewer runs of scale=laptop
OF_QUICK = "scale=laptop"


@dataclass(frozen=True)
class Sweep:
    """Overrides that apply to some experiments of a paper, or to all if none is named."""

    overrides: list[str]
    experiments: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, told: Any) -> "Sweep":
        """Parse a sweep; a list applies to every experiment. Raise BadSetting for other types."""
        if isinstance(told, list):
            return cls(told)
        if not isinstance(told, dict) or set(told) != {"overrides", "experiments"}:
            parts = "a list of overrides, or overrides and experiments"
            raise BadSetting(f"a sweep must be {parts}, got {told!r}")
        return cls(**told)

    def covers(self, experiment: str) -> bool:
        return not self.experiments or experiment in self.experiments


@dataclass(frozen=True)
class Paper:
    """Experiments and sweeps to run for a paper; `name` is also its folder in the results."""

    name: str
    title: str
    claims: str  # its name in claims.py and published.csv
    experiments: list[str]
    sweeps: list[Sweep]
    quick: list[Sweep] = field(default_factory=list)  # used instead for scale=quick
    figures: dict[str, list[str]] = field(default_factory=dict)  # to keep, by experiment

    @classmethod
    def read(cls, name: str) -> "Paper":
        """Read the plan of study `name`, or of a yaml file; raise BadSetting if it is bad."""
        known = reproducible()
        path = Path(name) if name.endswith(".yaml") else known.get(name)
        if path is None or not path.is_file():
            raise BadSetting(
                f"PAPER must be one of {', '.join(known)}, or a yaml file, got {name!r}"
            )
        with readable(path):
            told: Any = plain_yaml.from_file(path)
        if not isinstance(told, dict) or set(told) - set(MAY) != set(KEYS):
            raise BadSetting(
                f"{path} must have the keys {', '.join(KEYS)} and at most {', '.join(MAY)} beside"
            )
        if unknown := sorted({*told.get("figures", {})} - {*told["experiments"]}):
            said = "figures must be of experiments that it has"
            raise BadSetting(f"{path}: {said}, got {unknown[0]}")
        sweeps = {key: list(map(Sweep.read, told.get(key, []))) for key in ("sweeps", "quick")}
        return cls(path.stem if name.endswith(".yaml") else name, **(told | sweeps))

    def quickly(self) -> "Paper":
        """Return the paper with its quick sweeps and their experiments; BadSetting without any."""
        if not self.quick:
            raise BadSetting(
                f"scale must be laptop or paper for {self.name}, which has no quick form"
            )
        named = [e for e in self.experiments if any(sweep.covers(e) for sweep in self.quick)]
        return replace(self, experiments=named, sweeps=self.quick)

    def only(self, experiments: list[str]) -> "Paper":
        """Return the paper with these experiments (all if empty); BadSetting for an unknown one."""
        unknown = [name for name in experiments if name not in self.experiments]
        if unknown:
            known = ", ".join(self.experiments)
            raise BadSetting(f"--only must name experiments of {known}, got {', '.join(unknown)}")
        chosen = [name for name in self.experiments if name in experiments or not experiments]
        return replace(self, experiments=chosen)

    def commands(self, overrides: list[str]) -> list[list[str]]:
        """Return the arguments of `python -m harness` for each sweep of each experiment."""
        return [
            [f"+experiment={experiment}", *sweep.overrides, *overrides]
            for sweep in self.sweeps
            for experiment in self.experiments
            if sweep.covers(experiment)
        ]

    def described(self, overrides: list[str]) -> Described:
        """Return all distinct runs in the order of `commands`, at one scale."""
        found = describe(self.commands(overrides))
        pairs = zip(found.runs, found.overrides, strict=True)
        runs = {settings.run_dir(): (settings, said) for settings, said in pairs}
        each = list(runs.values())
        return found._replace(runs=[one for one, _ in each], overrides=[said for _, said in each])


def reproducible() -> dict[str, Path]:
    """Return the reproduce.yaml of every study that has one, by the study's name."""
    return {each.name: file for each in studies() if (file := each.file("reproduce.yaml"))}


def results_of(overrides: list[str]) -> Path:
    """Return the results folder of runs with these overrides."""
    return Path(compose(overrides)[0]["results"])


def check(runs: list[Settings]) -> None:
    """Check one of the `runs` for each setting but the seed; raise BadSetting with all errors."""
    kinds = {str(deciding(settings)): settings for settings in runs}
    missing: dict[str, None] = {}
    for settings in kinds.values():
        try:
            checked(settings)
        except BadSetting as error:
            missing[str(error)] = None
    if missing:
        raise BadSetting("\n".join(missing))
