"""A paper as its experiments and the sweeps of each: one yaml in `papers/`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from harness.doctor.composition import compose
from harness.plan import deciding
from harness.runner import run
from harness.settings import BadSetting, Settings

PAPERS = Path(__file__).resolve().parent / "papers"
KEYS = ("title", "claims", "experiments", "sweeps")


@dataclass(frozen=True)
class Paper:
    """What is run for a paper; `name` is that of its folder of results."""

    name: str
    title: str
    claims: str  # its file in harness/claims and in results/published
    experiments: list[str]
    sweeps: list[list[str]]  # overrides, each of every experiment

    @classmethod
    def read(cls, name: str) -> "Paper":
        """The paper called `name` in `papers/`, or a yaml file of one's own; BadSetting."""
        path = Path(name) if name.endswith(".yaml") else PAPERS / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(each.stem for each in PAPERS.glob("*.yaml")))
            raise BadSetting(f"PAPER must be one of {known}, or a yaml file, got {name!r}")
        told: Any = yaml.safe_load(path.read_text())
        if not isinstance(told, dict) or set(told) != set(KEYS):
            raise BadSetting(f"{path} must have the keys {', '.join(KEYS)} and no other")
        return cls(path.stem, **told)

    def only(self, experiments: list[str]) -> "Paper":
        """Those of its experiments, in its order; all for none. BadSetting for an unknown one."""
        unknown = [name for name in experiments if name not in self.experiments]
        if unknown:
            known = ", ".join(self.experiments)
            raise BadSetting(f"--only must name experiments of {known}, got {', '.join(unknown)}")
        chosen = [name for name in self.experiments if name in experiments or not experiments]
        return replace(self, experiments=chosen)

    def commands(self, overrides: list[str]) -> list[list[str]]:
        """Arguments of `python -m harness`, one list for each sweep of each experiment."""
        return [
            ["-m", f"+experiment={experiment}", *sweep, *overrides]
            for sweep in self.sweeps
            for experiment in self.experiments
        ]

    def runs(self, overrides: list[str]) -> list[Settings]:
        """Every run, each once, in the order of `commands`."""
        found = [one for command in self.commands(overrides) for one in compose(command)]
        return list({run.run_dir_of(settings): settings for settings in found}.values())


def results_of(overrides: list[str]) -> Path:
    """Where runs with these overrides are kept."""
    return Path(compose(overrides)[0]["results"])


def check(runs: list[Settings]) -> None:
    """Raise BadSetting, which names all that is missing, once each; seeds need nothing."""
    kinds = {str(deciding(settings)): settings for settings in runs}
    missing: dict[str, None] = {}
    for settings in kinds.values():
        try:
            settings.check()
        except BadSetting as error:
            missing[str(error)] = None
    if missing:
        raise BadSetting("\n".join(missing))
