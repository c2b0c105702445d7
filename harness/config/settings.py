"""The edge: a run's resolved configuration, whose values are checked and made a `Run` here.

Below, nobody reads a value by its key: what is run is a `harness.config.run.Run`. Plain values are
what a run's id, its label and the comparison with a checkpoint are of.
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
    """Methods of a tracker, as a command calls them."""

    def check(self) -> None: ...

    def write(self, run_dir: Path) -> None: ...


PARTS = (  # of a run; classes of those from `model` on import torch, so the others come first
    "profile", "parallel", "controller", "network", "model", "dataset", "compressor", "activations",
)  # fmt: skip
FIRST_WITH_TORCH = "model"
KINDS: dict[str, Any] = {  # what a part's class is, or has the methods of
    "profile": Profile, "parallel": Data | Split | Pipeline | Server | LocalSteps,
    "controller": Controller, "network": NetworkChoice,
    "tracker": Output, "optimizer.schedule": Schedule, "watch": Watch,
}  # fmt: skip
ADAPTED = ("model", "dataset")  # may be of classes that know nothing of this project
SHARED = ("model", "network", "profile")  # a frozen one is made once for all runs that describe it
MOST_SHARED = 256
WITH_STATE = ("compressor", "controller", "activations")  # every rank has its own
FILE_KEYS = {  # whose values are files that decide a result, and where those are that we ship
    "path": recordings.SHIPPED,
    "initial_weights": recordings.SHIPPED,
    "regions": SHIPPED_REGIONS,
}
SECTIONS = {"target": Target, "emulation": Emulation, "timeouts": Timeouts, "optimizer": Optimizer}
AUTO = "auto"  # emulation.dilation, which the runner then chooses
MOST_DRAWN_S = 100_000  # a day and some; random profiles are drawn up to there
NAME_BYTES = 200  # of an experiment: a report's files are called so, with an ending
OF_THE_EDGE = {  # what a run is not told
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
PLAIN = {  # keys of no section, and what they are in a Run
    each: each
    for each in (
        "seed", "network_seed", "workers", "workers_per_node", "steps", "batch_size",
        "accumulate", "precision", "device", "backend", "eval_every", "checkpoint_every",
        "initial_weights", "resume_from", "error_feedback", "residual_decay", "overlap", "fusion",
        "reuse_training",
    )
} | {"bucket_mb": "full_bucket_mb", "controller.agree": "agree"}  # fmt: skip
# where, whether and how shown, and what follows from the rest
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
# what training does not depend on where its densities do not; of `target` see `training`
NOT_TRAINING = ("experiment", "scale", "profile", "network_seed", "timeouts", "checkpoint_every",
                "target")  # fmt: skip
# may differ between the machines of a run, or only bound it
NOT_IDENTITY_OF_NETWORK = (
    "machine", "interface", "ledger", "token", "join_s", "time_limit_s", "in_place_of",
    "fitted_on",
)  # fmt: skip
# May differ between a run and the one it goes on from: where, how long, how looked at, on what
# network. Any other key must be equal.
MISSING = re.compile(r"missing \d+ required .*?arguments?: (.*)")  # as Python says it
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
        """Settings of an existing run directory."""
        return cls(plain_yaml.from_file(run_dir / "config.yaml", aliases=False))

    def __getitem__(self, key: str) -> Any:
        """Value of a dotted key, such as `emulation.dilation`."""
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
        """Settings that the run id is a hash of, with the content of the files they name."""
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
        """Settings that weights and compression depend on, with the content of the files they name.

        Those of a run whose controller does not react to the network, whose fields `only_times`
        neither depends on.
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
        """Hash of what decides the result."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def run_dir(self) -> Path:
        """results/<experiment>/<run id>.

        A machine that is not the first of a run keeps its part elsewhere, by its network.
        """
        place = self.build("network").place(self.run_id())
        return Path(self["results"]).absolute() / self["experiment"] / place

    def build(self, part: str) -> Any:
        """The object one of PARTS (or `optimizer.schedule`) describes.

        Raises BadSetting with the section's name in front of what the object itself says.
        """
        section = self._section(part)
        try:
            described = _described(part, section)
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
        except Exception as error:  # of importing whatever _target_ names
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
            _share(described, made)
        return made

    def _section(self, part: str) -> dict[str, Any]:
        """Section of the configuration that makes a part; BadSetting if there is none."""
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
        """True if the runner chooses the dilation: see `harness.runner.tries`."""
        return self["emulation.dilation"] == AUTO

    def _dilated(self, dilation: float) -> "Settings":
        """Return settings with this dilation if the runner chooses it, else these."""
        if self.is_dilated_by_load and self["emulation.compute"] != "measured":
            if self.build("network").machines_of_run() == 1:
                emulation = self["emulation"] | {"dilation": dilation}
                return Settings(self.config | {"emulation": emulation})
        return self

    def keys(self) -> dict[str, Any]:
        """Values of a run's plain keys and sections, by their name in `Run`; imports no torch.

        Raises BadSetting at the first that is out of range.
        """
        hints = get_type_hints(RunKeys, include_extras=True)
        self.require_fit("", {key: hints[name] for key, name in PLAIN.items()} | OF_THE_EDGE)
        values = {name: self[key] for key, name in PLAIN.items()}
        values["reuse_training"] = values["reuse_training"] and not self["rerun"]
        return values | {name: self.section_of(name, kind) for name, kind in SECTIONS.items()}

    def check_without_torch(self) -> None:
        """Raise BadSetting for an unknown key, a bad plain value, or a bad part without tensors.

        It imports torch only where the class of such a part does.
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
        """Build the run; BadSetting at the first value that cannot be, whatever the others.

        `dilation` is used if the runner chooses it.
        """
        if (settings := self._dilated(dilation)) is not self:
            return settings.run()
        values = self.keys()
        from harness.config.run import Run  # torch: not before the values above are right

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
        """Build a section that is no part; the optimizer has one, its schedule."""
        kinds = get_type_hints(kind, include_extras=True)
        plain = {key: each for key, each in kinds.items() if key != "schedule"}
        self.require_fit(f"{name}.", plain)
        parts = {key: self.build(f"{name}.{key}") for key in kinds if key not in plain}
        values = {key: as_declared(self[f"{name}.{key}"], plain[key]) for key in plain}
        return kind(**values, **parts)

    def require_fit(self, prefix: str, kinds: dict[str, Any]) -> None:
        """BadSetting unless the keys of `kinds`, after `prefix`, have values of these types."""
        if wrong := unfit({key: self[prefix + key] for key in kinds}, kinds, prefix):
            raise BadSetting(wrong)


_shared: dict[Hashable, Any] = {}  # parts that were made, by what describes them


def _is_frozen(made: Any) -> bool:
    params = getattr(type(made), "__dataclass_params__", None)
    return params is not None and params.frozen


def _require_part(part: str, made: Any, path: str) -> None:
    """Raise BadSetting unless `made`, at `path`, is such a part by its class; nothing is called."""
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


def _share(described: Hashable, made: Any) -> None:
    if len(_shared) >= MOST_SHARED:
        _shared.clear()
    _shared[described] = made


def _described(part: str, section: dict[str, Any]) -> Hashable:
    """Return all that decides the object that a section makes; files count by content."""
    return part, located(section["_target_"]), repr(section), repr(_digests(section))


def deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that must be equal where a run goes on from another, as a file has them."""
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
    """Complaint about a key that the part's class does not have; "" when it has all."""
    if not (unknown := unknown_keys(part, section)):
        return ""
    target = located(section["_target_"])
    there = ", ".join(inspect.signature(target).parameters) or "none"
    return f"{unknown[0]} is no key of {target.__name__}, whose keys are {there}"


def _digests(config: dict[str, Any]) -> dict[str, str]:
    """Digests of the files that a configuration names, as far as they are here."""
    found = {name: recordings.find_in(shipped, name) for name, shipped in _files(config)}
    return {name: recordings.digest(file) for name, file in found.items() if file}


def _files(value: Any) -> Iterator[tuple[str, Path]]:
    """Every file that a configuration names, at any depth, and where it is if it is shipped."""
    if isinstance(value, dict):
        named = ((value.get(key), shipped) for key, shipped in FILE_KEYS.items())
        yield from ((name, shipped) for name, shipped in named if isinstance(name, str))
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _files(inner)
