"""Conversion of a run's resolved configuration to a checked `harness.config.run.Run`.

Code below uses the `Run` and reads no value by its key. The run's id, its label and the comparison
with a checkpoint are computed from the plain values here.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Container, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, get_args, get_type_hints

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from controllers.base import Controller
from harness.config import plain_yaml, search_path
from harness.config.keys import Emulation, Optimizer, RunKeys, Target, Timeouts
from harness.config.local_steps import LocalSteps
from harness.config.network import NetworkChoice
from harness.config.parallel import Data, Pipeline, Split
from harness.config.schedules import Schedule
from harness.config.server import Server
from harness.config.typed import BadSetting as BadSetting
from harness.config.typed import (
    Must,
    as_declared,
    forbidden,
    is_of,
    is_path,
    is_section,
    located,
    methods_of,
    mistyped,
    require,
    unfit,
)
from harness.config.watch import Watch
from profiles import recordings
from profiles.base import Profile
from profiles.regions import SHIPPED_REGIONS

if TYPE_CHECKING:
    from harness.config.run import Run


class Output(Protocol):
    """Methods of a tracker that commands call."""

    def check(self) -> None: ...

    def write(self, run_dir: Path) -> None: ...


PARTS = (  # parts of a run; those from `model` on import torch, so they come last
    "profile", "parallel", "controller", "network", "model", "dataset", "compressor", "activations",
)  # fmt: skip
FIRST_WITH_TORCH = "model"
KINDS: dict[str, Any] = {  # base or protocol of each kind of part
    "profile": Profile, "parallel": Data | Split | Pipeline | Server | LocalSteps,
    "controller": Controller, "network": NetworkChoice,
    "tracker": Output, "optimizer.schedule": Schedule, "watch": Watch,
}  # fmt: skip
ADAPTED = ("model", "dataset")  # accept classes without our interface
SHARED = ("model", "network", "profile")  # built once per description if frozen
MOST_SHARED = 256
WITH_STATE = ("compressor", "controller", "activations")  # each rank builds its own
FILE_KEYS = {  # keys that name files, and the folder of the files we ship
    "path": recordings.SHIPPED,
    "initial_weights": recordings.SHIPPED,
    "regions": SHIPPED_REGIONS,
}
SECTIONS = {"target": Target, "emulation": Emulation, "timeouts": Timeouts, "optimizer": Optimizer}
AUTO = "auto"  # value of emulation.dilation that lets the runner choose it
MOST_DRAWN_S = 100_000  # a little more than a day; random profiles end there
NAME_BYTES = 200  # a report's files have the experiment's name and a suffix
OF_THE_EDGE = {  # keys that only the command uses
    "experiment": Annotated[
        str,
        Must(
            f"a folder name of at most {NAME_BYTES} bytes without control characters",
            lambda name: is_path(name, NAME_BYTES) and name not in (".", "..") and "/" not in name,
        ),
    ],
    "plan": bool, "rerun": bool, "report": bool,
    "draw": bool | Annotated[  # type: ignore[dict-item]
        float, Must("emulated seconds in [1, 100000]", lambda seconds: 1 <= seconds <= MOST_DRAWN_S)
    ],
    "results": Annotated[str, Must("a path", is_path)],
}  # fmt: skip
PLAIN = {  # keys outside of sections, and their names in a Run
    each: each
    for each in (
        "seed", "network_seed", "workers", "workers_per_node", "steps", "batch_size",
        "accumulate", "precision", "device", "backend", "eval_every", "checkpoint_every",
        "initial_weights", "resume_from", "error_feedback", "residual_decay", "overlap", "fusion",
        "reuse_training",
    )
} | {"bucket_mb": "full_bucket_mb", "controller.agree": "agree"}  # fmt: skip
# Keys that do not change the result, and keys derived from others.
NOT_IDENTITY = (
    "results",
    "plan",
    "draw",
    "rerun",
    "report",
    "tracker",
    "method",
    "reuse_training",
    "typed",
)
# Keys that training is independent of if its densities are. For `target` see `training`.
NOT_TRAINING = ("experiment", "scale", "profile", "network_seed", "timeouts", "checkpoint_every",
                "target")  # fmt: skip
# Keys that may differ between the machines of a run, or that only limit it.
NOT_IDENTITY_OF_NETWORK = (
    "machine", "interface", "ledger", "token", "join_s", "time_limit_s", "in_place_of",
    "fitted_on",
)  # fmt: skip
MISSING = re.compile(r"missing \d+ required .*?arguments?: (.*)")  # Python's TypeError
# Keys that a resumed run may change: folders, length, evaluation, device and network. All others
# must be equal.
FREE = {"experiment", "method", "steps", "target", "eval_every", "checkpoint_every"}
FREE |= {
    "initial_weights",
    "resume_from",
    "device",
    "backend",
    "workers_per_node",
    "profile",
    "network",
}
FREE |= {"network_seed"}
FREE |= {"emulation", "timeouts", "results", "plan", "draw", "rerun", "report", "tracker"}
FREE |= {"reuse_training", "typed"}


@dataclass(frozen=True)
class Settings:
    """The resolved configuration of one run."""

    config: dict[str, Any]

    @classmethod
    def read(cls, run_dir: Path) -> "Settings":
        """Return the settings stored in an existing run directory."""
        return cls(plain_yaml.from_file(run_dir / "config.yaml", aliases=False))

    def __getitem__(self, key: str) -> Any:
        """Return a dotted key's value; raise KeyError if missing, BadSetting in a non-section."""
        value: Any = self.config
        for part in key.split("."):
            if not isinstance(value, dict):
                section = key.rpartition(f".{part}")[0]
                raise BadSetting(f"{section} must be a section with {part}, got {value!r}")
            if part not in value:
                raise KeyError(f"{key} must be given")
            value = value[part]
        return value

    def identity(self) -> dict[str, Any]:
        """Return the settings that the run id is a hash of, with digests of the files they name."""
        deciding = {key: value for key, value in self.config.items() if key not in NOT_IDENTITY}
        if "timeouts" in deciding:
            timeouts = deciding["timeouts"].items()
            deciding["timeouts"] = {k: v for k, v in timeouts if k != "run_s"}
        if "emulation" in deciding:
            emulation = deciding["emulation"].items()
            deciding["emulation"] = {k: v for k, v in emulation if k != "priority"}
        network = deciding["network"].items()
        deciding["network"] = {k: v for k, v in network if k not in NOT_IDENTITY_OF_NETWORK}
        resumed = None
        if path := deciding.pop("resume_from", None):
            from harness.records import checkpoint  # torch

            resumed = checkpoint.digest_of(path)
        more = {"files": _digests(deciding), "resumed": resumed}
        return deciding | {key: value for key, value in more.items() if value}

    def training(self, only_times: Container[str]) -> dict[str, Any]:
        """Return the settings that decide weights and compression, with digests of their files.

        This holds if the controller does not react to the network. `only_times` are the keys of the
        network that change nothing but times.
        """
        free = {*NOT_IDENTITY, *NOT_TRAINING}
        found = {key: value for key, value in self.config.items() if key not in free}
        network, emulation = self["network"].items(), found.get("emulation", {}).items()
        found["network"] = {key: value for key, value in network if key not in only_times}
        found["emulation"] = {key: value for key, value in emulation if key != "priority"}
        if self["target.ends_run"]:
            found["target"] = self["target"]
        return found | {"files": _digests(found)}

    def run_id(self) -> str:
        """Return a hash of the settings that decide the result: 12 hexadecimal digits."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def run_dir(self) -> Path:
        """Return absolute results/EXPERIMENT/RUN_ID, or the network's folder on later machines."""
        place = self.build("network").place(self.run_id())
        return Path(self["results"]).absolute() / self["experiment"] / place

    def build(self, part: str) -> Any:
        """Build the object of section `part`; those in SHARED are built once if frozen.

        Raise BadSetting, starting with the section's name, if the section is invalid.
        """
        section = self._section(part)
        try:
            described = part, located(section["_target_"]), repr(section), repr(_digests(section))
            if described in _shared:
                return _shared[described]
            wrong = forbidden(section)
            if not wrong:
                _require_part(part, located(section["_target_"]), section["_target_"])
                if part in ADAPTED:
                    from harness.config import own  # torch

                    section = own.as_part(part, section)
                wrong = _unknown_key(part, section) or mistyped(section)
        except BadSetting:
            raise
        except Exception as error:  # importing `_target_` may raise anything
            raise BadSetting(f"{part}._target_ must name a class: {_first_line(error)}") from error
        if wrong:
            raise BadSetting(f"{part}: {wrong}")
        try:
            made = instantiate(OmegaConf.create(section), _convert_="all")
        except InstantiationException as error:
            said = _first_line(error.__cause__ or error)
            if missing := MISSING.search(said):
                said = f"{missing[1]} must be given"
            raise BadSetting(f"{part}: {said}") from error
        if part in SHARED and _is_frozen(made):
            if len(_shared) >= MOST_SHARED:
                _shared.clear()
            _shared[described] = made
        return made

    def _section(self, part: str) -> dict[str, Any]:
        """Return a part's section without `agree`; raise BadSetting if it has no `_target_`."""
        try:
            section = self[part]
        except KeyError:
            section = None
        if not is_section(section):
            wanted = f"{part} must be a section with _target_"
            if isinstance(section, Mapping) and "_target_" in section:
                wanted, section = (
                    f"{part}._target_ must be a class by its path",
                    section["_target_"],
                )
            raise BadSetting(f"{wanted}, got {section!r}")
        return {key: value for key, value in section.items() if key != "agree"}

    @property
    def is_dilated_by_load(self) -> bool:
        """True if the runner chooses the dilation (see `harness.runner.tries`)."""
        return self["emulation.dilation"] == AUTO

    def _dilated(self, dilation: float) -> "Settings":
        """Return settings with this dilation if the runner has to choose it, else `self`."""
        if self.is_dilated_by_load and self["emulation.compute"] != "measured":
            if self.build("network").machines_of_run() == 1:
                emulation = self["emulation"] | {"dilation": dilation}
                return Settings(self.config | {"emulation": emulation})
        return self

    def keys(self) -> dict[str, Any]:
        """Return the values of plain keys and sections by their names in `Run`, without torch.

        Raise BadSetting at the first value that is out of range.
        """
        hints = get_type_hints(RunKeys, include_extras=True)
        self.require_fit("", {key: hints[name] for key, name in PLAIN.items()} | OF_THE_EDGE)
        values = {name: self[key] for key, name in PLAIN.items()}
        values["reuse_training"] = values["reuse_training"] and not self["rerun"]
        return values | {name: self.section_of(name, kind) for name, kind in SECTIONS.items()}

    def check_without_torch(self) -> None:
        """Raise BadSetting for an unknown key, a bad plain value, or a bad part without tensors.

        Import torch only if the class of such a part does.
        """
        sections = {name: self.config.get(name) for name in SECTIONS}
        given = {f"{name}.{key}" for name, own in sections.items() for key in own or ()}
        if unknown := sorted({*self.config, *given} - {*search_path.keys(), "method"}):
            raise BadSetting(
                f"{unknown[0]} is no key of a run; `python -m harness --help` lists them"
            )
        self._dilated(1.0).keys()
        for part in PARTS[: PARTS.index(FIRST_WITH_TORCH)]:
            self.build(part)

    def run(self, dilation: float = 1.0) -> "Run":
        """Build the run, with `dilation` if none is set; BadSetting at the first invalid value."""
        if (settings := self._dilated(dilation)) is not self:
            return settings.run()
        values = self.keys()
        from harness.config.run import Run  # torch: only after the checks above

        parts = {part: self.build(part) for part in PARTS}
        makers = {part: partial(self.build, part) for part in WITH_STATE}
        return Run(
            **values,
            **(parts | makers),
            label=self["method.name"],
            times=parts["model"].times,
            watch=None if self["watch"] is None else self.build("watch"),
            deciding=deciding(self.config),
            training=partial(self.training, getattr(parts["network"], "only_times", ())),
        )

    def section_of(self, name: str, kind: type) -> Any:
        """Build section `name` as a `kind`, such as Target; its `schedule`, if any, is a part."""
        kinds = get_type_hints(kind, include_extras=True)
        plain = {key: each for key, each in kinds.items() if key != "schedule"}
        self.require_fit(f"{name}.", plain)
        parts = {key: self.build(f"{name}.{key}") for key in kinds if key not in plain}
        values = {key: as_declared(self[f"{name}.{key}"], plain[key]) for key in plain}
        return kind(**values, **parts)

    def require_fit(self, prefix: str, kinds: dict[str, Any]) -> None:
        """Raise BadSetting unless the keys of `kinds`, after `prefix`, have values of its types."""
        if wrong := unfit({key: self[prefix + key] for key in kinds}, kinds, prefix):
            raise BadSetting(wrong)


_shared: dict[Hashable, Any] = {}  # built parts by their description


def _is_frozen(made: Any) -> bool:
    params = getattr(type(made), "__dataclass_params__", None)
    return params is not None and params.frozen


def _require_part(part: str, made: Any, path: str) -> None:
    """Raise BadSetting unless `made`, found at `path`, is a class for `part`. Nothing is called."""
    kind = KINDS.get(part)
    if kind is None:
        from harness.config import own  # torch

        kind = own.KINDS[part]
    kinds = get_args(kind) or (kind,)
    good = any(is_of(made, kind) for kind in kinds)
    methods = ", ".join(methods_of(kinds[0]))
    wanted = f"a class with {methods}"
    if len(kinds) > 1:
        wanted = f"one of {', '.join(kind.__name__ for kind in kinds)}"
    if part in ADAPTED:
        good = good or own.is_own(part, made)
        wanted += f", or {own.OWN[part].said}"
    require(good, f"{part}._target_", path, wanted)


def deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that must be equal to resume from another run, as JSON values."""
    return json.loads(json.dumps({k: v for k, v in config.items() if k not in FREE}))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def unknown_keys(part: str, section: dict[str, Any]) -> list[str]:
    """Return the keys of a section that the class of `part` does not have."""
    if part in ADAPTED:
        from harness.config import own  # torch

        section = own.as_part(part, section)
    section = {key: value for key, value in section.items() if key != "agree"}
    known = inspect.signature(located(section["_target_"])).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return []
    return [key for key in section if key not in known and not key.startswith("_")]


def _unknown_key(part: str, section: dict[str, Any]) -> str:
    """Return a message on the first key that the part's class does not have; "" if none."""
    if not (unknown := unknown_keys(part, section)):
        return ""
    target = located(section["_target_"])
    there = ", ".join(inspect.signature(target).parameters) or "none"
    return f"{unknown[0]} is no key of {target.__name__}, whose keys are {there}"


def _digests(config: dict[str, Any]) -> dict[str, str]:
    """Return the digests of the files that a configuration names, if they are on this machine."""
    found = {name: recordings.find_in(shipped, name) for name, shipped in _files(config)}
    return {name: recordings.digest(file) for name, file in found.items() if file}


def _files(value: Any) -> Iterator[tuple[str, Path]]:
    """Yield (name, shipped folder) for each file that a configuration names, at any depth."""
    if isinstance(value, dict):
        named = ((value.get(key), shipped) for key, shipped in FILE_KEYS.items())
        yield from ((name, shipped) for name, shipped in named if isinstance(name, str))
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _files(inner)
