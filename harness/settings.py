"""A run's settings as plain values: read from the resolved configuration, checked, and built."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

from harness.training import checkpoint
from profiles import recordings

PARTS = (
    "model", "dataset", "compressor", "controller", "activations", "parallel", "profile", "network",
)  # fmt: skip
FILE_KEYS = ("path", "initial_weights")  # whose values are files that decide a result
NOT_IDENTITY = ("results", "plan", "rerun", "report")  # where, whether and how shown, not what
# may differ between the machines of a run, or only bound it
NOT_IDENTITY_OF_NETWORK = (
    "machine", "interface", "ledger", "join_s", "time_limit_s", "in_place_of",
    "fitted_on",
)  # fmt: skip


class BadSetting(ValueError):
    """A setting the user has to change; the message names key, value and what is allowed."""


@dataclass(frozen=True)
class Settings:
    """The resolved configuration of one run."""

    config: dict[str, Any]

    @classmethod
    def read(cls, run_dir: Path) -> "Settings":
        """Settings of an existing run directory."""
        return cls(yaml.safe_load((run_dir / "config.yaml").read_text()))

    def __getitem__(self, key: str) -> Any:
        """Value of a dotted key, such as `emulation.dilation`."""
        value: Any = self.config
        for part in key.split("."):
            value = value[part]
        return value

    def identity(self) -> dict[str, Any]:
        """What the run id is a hash of: no display, but what is in the files that are named."""
        deciding = {key: value for key, value in self.config.items() if key not in NOT_IDENTITY}
        network = deciding["network"].items()
        deciding["network"] = {k: v for k, v in network if k not in NOT_IDENTITY_OF_NETWORK}
        found = {name: recordings.find(name) for name in _files(deciding)}
        files = {name: recordings.digest(file) for name, file in found.items() if file}
        resumed = checkpoint.digest_of(deciding.pop("resume_from", None))
        more = {"files": files, "resumed": resumed}
        return deciding | {key: value for key, value in more.items() if value}

    def build(self, part: str) -> Any:
        """The object one of PARTS (or `optimizer.schedule`) describes.

        Raises BadSetting with the section's name in front of what the object itself says.
        """
        section = self._section(part)
        try:
            return instantiate(OmegaConf.create(section), _convert_="all")
        except InstantiationException as error:
            cause = _unknown_key(part, section) or error.__cause__ or error
            raise BadSetting(f"{part}: {cause}") from error

    def _section(self, part: str) -> dict[str, Any]:
        """What a part is made of."""
        try:
            section = self[part]
        except KeyError:
            section = None
        if not isinstance(section, dict) or "_target_" not in section:
            raise BadSetting(f"{part} must be a section with _target_, got {section!r}")
        return {key: value for key, value in section.items() if key != "agree"}

    def bucket_mb(self) -> float | None:
        """What fills a bucket, MiB; 0: every tensor is one; None: DDP's own sizes."""
        return 0.0 if self["overlap"] == "per_tensor" else self["bucket_mb"]

    def total_steps(self, steps_per_epoch: int) -> int:
        """Steps of the run, from `steps` or `epochs`."""
        return self["steps"] or round(self["epochs"] * steps_per_epoch)

    def check(self) -> dict[str, Any]:
        """Every part, built; raises BadSetting at the first value that cannot work."""
        check_numbers(self)
        from harness.fit import check_fit  # which imports this module

        parts = {part: self.build(part) for part in PARTS}
        self.build("optimizer.schedule")
        check_fit(self, parts)
        return parts


def leaves(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of nested mappings, with the keys that lead to it."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*keys, str(key)))
    else:
        yield keys, value


def _unknown_key(part: str, section: dict[str, Any]) -> str:
    """What is said of a key that the part's class does not have; empty when it has all."""
    target = get_object(section["_target_"])
    known = inspect.signature(target).parameters
    unknown = [key for key in section if key not in known and not key.startswith("_")]
    if not unknown or any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return ""
    there, first = ", ".join(known) or "none", unknown[0]
    return (
        f"{first} is no key of {target.__name__}, whose keys are {there}; "
        f"a method sets it for its own {part}: ~{part}.{first} takes it away"
    )


def _files(value: Any) -> Iterator[str]:
    """Every file that a configuration names, at any depth."""
    if isinstance(value, dict):
        yield from (value[key] for key in FILE_KEYS if isinstance(value.get(key), str))
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _files(inner)


def _require(good: bool, key: str, value: Any, allowed: str) -> None:
    if not good:
        raise BadSetting(f"{key} must be {allowed}, got {value!r}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_numbers(settings: Settings) -> None:
    """Every value that is no part; raises BadSetting at the first that cannot work."""
    whole = {"workers": 1, "workers_per_node": 1, "batch_size": 1, "accumulate": 1}
    whole |= {"seed": 0, "eval_every": 1}
    for key, least in whole.items():
        value = settings[key]
        _require(_is_whole(value, least), key, value, f"a whole number >= {least}")
    for key in ("emulation.dilation", "timeouts.start_s", "timeouts.stop_s"):
        value = settings[key]
        _require(_is_number(value) and value > 0, key, value, "a number > 0")
    for key in ("optimizer.lr", "optimizer.momentum", "optimizer.weight_decay"):
        value = settings[key]
        _require(_is_number(value) and value >= 0, key, value, "a number >= 0")
    for key in ("steps", "epochs", "timeouts.exchange_s", "optimizer.clip_norm"):
        value = settings[key]
        _require(value is None or (_is_number(value) and value > 0), key, value, "> 0 or null")
    value = settings["bucket_mb"]
    _require(value is None or (_is_number(value) and value >= 0), "bucket_mb", value,
             ">= 0 or null")  # fmt: skip
    _require(settings["steps"] is None or _is_whole(settings["steps"], 1), "steps",
             settings["steps"], "a whole number >= 1")  # fmt: skip
    every = settings["checkpoint_every"]
    _require(every is None or _is_whole(every, 0), "checkpoint_every", every,
             "a whole number >= 0, or null for none")  # fmt: skip
    target = settings["target"]
    _require(not target["ends_run"] or _is_number(target["value"]), "target.value",
             target["value"], "a number with target.ends_run")  # fmt: skip
    decay = settings["residual_decay"]
    _require(_is_number(decay) and 0 <= decay <= 1, "residual_decay", decay, "a number in [0, 1]")
    workers, shared = settings["workers"], settings["workers_per_node"]
    _require(workers % shared == 0, "workers_per_node", shared, f"a divisor of workers={workers}")
    both = (settings["steps"], settings["epochs"])
    _require(both.count(None) == 1, "steps, epochs", both, "one number and one null")
    for key, choices in {
        "device": ("auto", "cpu", "cuda"),
        "emulation.compute": ("measured", "paced", "replay"),
        "controller.agree": ("local", "min", "mean"),
        "overlap": ("per_bucket", "per_tensor", "after_backward"),
        "precision": ("float32", "bf16"),
        "error_feedback": (True, False),
        "target.ends_run": (True, False),
        "optimizer.kind": ("sgd", "adam"),
        "plan": (True, False),
        "rerun": (True, False),
        "report": (True, False),
    }.items():
        allowed = "one of " + ", ".join(str(choice).lower() for choice in choices)
        _require(settings[key] in choices, key, settings[key], allowed)
    _require(settings["error_feedback"] or decay == 1, "residual_decay", decay,
             "1 without error_feedback, which it is a part of")  # fmt: skip
    options = settings["optimizer"]
    adam, momentum = options["kind"] == "adam", options["momentum"]
    _require(not adam or momentum < 1, "optimizer.momentum", momentum, "< 1 with adam")
    beta_2 = options["beta_2"]
    _require(_is_number(beta_2) and 0 <= beta_2 < 1, "optimizer.beta_2", beta_2,
             "a number in [0, 1)")  # fmt: skip
    _require(not (adam and options["nesterov"]), "optimizer.nesterov", True, "false with adam")
    name = settings["experiment"]
    _require(isinstance(name, str) and name not in ("", ".", "..") and "/" not in name,
             "experiment", name, "a folder name")  # fmt: skip
