"""Runs of a command line: a single run, a sweep, or all lines of an experiment's comparison.

The command line overrides the lines of a comparison, key by key. A `method` in the command line
also overrides all settings of the method's parts in them.
"""

import pickle
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.errors import MissingConfigException
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict

from harness.config import hydra_plugin as hydra_plugin
from harness.config import label, parts, search_path
from harness.config.fallback import fallback_of
from harness.config.search_path import CONF
from harness.config.settings import FIRST_WITH_TORCH, PARTS, BadSetting, Settings, unknown_keys
from harness.config.typed import is_section, unfit

MULTIRUN = ("-m", "--multirun")
MAY_SWEEP = set(",(")  # any swept override has one: `a,b`, `range(0,3)`
MOST_KEPT = 128  # cached compositions of 0.6 MB each
NOT_OF_A_RUN = ("hydra", "comparison", "seeds", "folder")
OF_A_COMPARISON = {"comparison": list[str], "seeds": list[int]}
ALONE = "comparison=[]"  # selects one run of an experiment
FOLDER = re.compile("experiment=")  # matches no +experiment=, which is the group
OF_A_METHOD = (
    "method",
    "compressor",
    "controller",
    "activations",
    "error_feedback",
    "residual_decay",
    "overlap",
    "bucket_mb",
    "fusion",
)


_stamps: list[int] = []  # `search_path.stamp` of each open `hydra()`


class OnlyAStandIn(BadSetting):
    """Error for a choice that exists at scale=laptop but not at scale=paper."""


@contextmanager
def hydra() -> Iterator[None]:
    """Context manager that initialises Hydra at conf/; all functions here need it.

    The caller may be a Hydra application itself: its state is restored afterwards.
    """
    instances = Singleton._instances
    process_wide: tuple[Any, ...] = (GlobalHydra, HydraConfig, JobRuntime, VersionBase)
    callers = {kind: instances.pop(kind) for kind in process_wide if kind in instances}
    try:
        with initialize_config_dir(str(CONF), version_base="1.3", job_name="harness"):
            search_path.check_own()
            _stamps.append(search_path.stamp())
            try:
                yield
            finally:
                _stamps.pop()
    finally:
        for kind in process_wide:
            instances.pop(kind, None)
        instances.update(callers)


def choices(arguments: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each run of a sweep, in order and without repetition.

    They are all combinations of the lists in `arguments`, for each line of the experiment. Raise
    BadSetting for an invalid experiment.
    """
    asked = [each for each in arguments if each not in MULTIRUN]
    _check_folder_name(asked)
    lines = comparison(asked)
    if not lines and len(asked) == len(arguments):
        return [asked]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    given = parser.parse_overrides(asked)
    found = [
        choice
        for line in lines or [[]]
        for choice in _product([*_left(parser.parse_overrides(line), given), *given])
    ]
    return [list(each) for each in dict.fromkeys(map(tuple, found))]


def _check_folder_name(overrides: Sequence[str]) -> None:
    """Raise BadSetting for `experiment=NAME` if NAME is an experiment but `+` is missing.

    It would put other runs into the folder of that experiment.
    """
    if any(each.startswith(("+experiment=", "++experiment=")) for each in overrides):
        return
    names = search_path.choices("experiment")
    for override in filter(FOLDER.match, overrides):
        name = override.partition("=")[2].strip("\"'")
        if name in names:
            raise BadSetting(
                f"{override} names a folder, and the experiment of that name is not run; write "
                f"+{override} to run it, or the name of another folder"
            )


def comparison(overrides: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each line of the experiment in `overrides`, with its seeds.

    The list is empty without an experiment. Raise BadSetting for invalid lines or seeds.
    """
    whole = load(overrides, RunMode.MULTIRUN)
    told: Any = OmegaConf.to_container(OmegaConf.masked_copy(whole, list(OF_A_COMPARISON)))
    if wrong := unfit(told, OF_A_COMPARISON):
        raise BadSetting(wrong)
    seeds = ",".join(str(seed) for seed in whole.seeds)
    return [[*shlex.split(line), f"seed={seeds}"] for line in whole.comparison]


def load(overrides: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
    """Return Hydra's composed configuration, which the caller must not change.

    MULTIRUN leaves out swept keys. Raise OnlyAStandIn if only scale=laptop has a choice.
    """
    sweeps = any(MAY_SWEEP & set(each) for each in overrides)
    try:
        asked = tuple(map(_as_key, overrides))
        return _composed(_stamps[-1], asked, mode if sweeps else RunMode.RUN)
    except MissingConfigException as missing:
        group, _, choice = (missing.missing_cfg_file or "").rpartition("/")
        if choice.removesuffix("_paper") + "_laptop" not in (missing.options or ()):
            raise
        raise OnlyAStandIn(
            f"scale must be laptop for {group} {choice.removesuffix('_paper')}, which stands in "
            "for what is not published, got paper: write scale=laptop"
        ) from missing


@lru_cache(MOST_KEPT)
def _composed(stamp: int, overrides: tuple[str, ...], mode: RunMode) -> DictConfig:
    """Compose the groups, which are cached for all runs of a sweep, and then set the values.

    `stamp` identifies the state of the files. Mappings of a part, such as `units`, take new keys.
    """
    loader: Any = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    values = [
        override
        for override in parsed
        if not (override.is_sweep_override() or key_of(override).startswith("hydra"))
        and not loader.repository.group_exists(override.key_or_group)
    ]
    others = tuple(str(override.input_line) for override in parsed if override not in values)
    config: DictConfig = pickle.loads(_groups(stamp, others, mode))
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    task = [each for each in overrides if not each.lstrip("+~").startswith("hydra")]
    config.hydra.overrides.task = task
    return config


@lru_cache(MOST_KEPT)
def _groups(stamp: int, overrides: tuple[str, ...], mode: RunMode) -> bytes:
    """Compose with Hydra and return the result pickled; unpickling takes a tenth of the time."""
    loader: Any = GlobalHydra.instance().config_loader()
    config = loader.load_configuration("config", list(overrides), mode, mode == RunMode.RUN)
    waiting = [(config[key], False) for key in config if key != "hydra" and _is_map(config, key)]
    while waiting:
        section, of_part = waiting.pop()
        is_part = is_section(section)
        if of_part:
            OmegaConf.set_struct(section, is_part)
        of_part = of_part or is_part
        waiting += [(section[key], of_part) for key in section if _is_map(section, key)]
    return pickle.dumps(config)


def _is_map(section: DictConfig, key: Any) -> bool:
    node = section._get_node(key)
    return isinstance(node, DictConfig) and not (node._is_none() or node._is_interpolation())


def _as_key(override: str) -> str:
    """Rename `experiment=NAME` (a folder) to `folder=NAME`, as `experiment` is also a group."""
    return override.replace("experiment=", "folder=", 1) if FOLDER.match(override) else override


def key_of(override: Override) -> str:
    return override.get_key_element().lstrip("+~")


def _left(line: list[Override], given: list[Override]) -> Iterator[Override]:
    """Yield the overrides of `line` that the command line (`given`) does not replace."""
    said = [key_of(each) for each in given]
    if "method" in said:
        said += OF_A_METHOD
    for each in line:
        key = key_of(each)
        if not any(key == other or key.startswith((f"{other}.", f"{other}/")) for other in said):
            yield each


def _product(overrides: list[Override]) -> list[list[str]]:
    [found] = BasicSweeper.split_arguments(overrides, None)
    return [list(each) for each in found]


def settings_of(choice: Sequence[str]) -> Settings:
    """Return one run's settings and command, in virtual time if packets are impossible here."""
    settings = usable_settings(load(choice))
    words = [*choice, *([ALONE] if any("experiment=" in word for word in choice) else [])]
    settings.config["typed"] = shlex.join(["python", "-m", "harness", *dict.fromkeys(words)])
    return settings


def usable_settings(config: DictConfig) -> Settings:
    """Return the settings of Hydra's `config`, in virtual time if packets are impossible here."""
    settings = plain_settings(config)
    if (instead := fallback_of(settings, config.hydra)) is None:
        return settings
    asked = [*config.hydra.overrides.task, f"network={instead.network}"]
    settings = plain_settings(load(asked))
    settings.config["network"]["in_place_of"] = instead.in_place_of
    return settings


def plain_settings(config: DictConfig) -> Settings:
    """Return Hydra's configuration as plain values of one run, with the name of its method."""
    if config.folder is not None:
        config = config.copy()
        with open_dict(config):
            config.experiment, config.folder = config.folder, None
    told = {str(key): _plain(config[key]) for key in config if key not in NOT_OF_A_RUN}
    for group in PARTS:
        if group == FIRST_WITH_TORCH:
            Settings(told).check_without_torch()
        _drop_keys_of_another_choice(group, told, config)
    return Settings(told | {"method": {"name": label.of(told)}})


def _drop_keys_of_another_choice(group: str, told: dict[str, Any], config: DictConfig) -> None:
    """Delete keys from section `group` of `told` that belong to a choice that was replaced.

    An override replaces a choice, but keys that a method or experiment set for it would stay.
    """
    overrides = [each.lstrip("+") for each in config.hydra.overrides.task]
    section: Any = told.get(group)
    if not (is_section(section) and any(each.startswith(f"{group}=") for each in overrides)):
        return
    with suppress(ImportError, TypeError, ValueError):  # the check of the run reports these
        unknown = unknown_keys(group, section)
        own = parts.keys_of(group, config.hydra.runtime.choices[group]) if unknown else ()
        for key in unknown:
            if key not in own and not any(each.startswith(f"{group}.{key}=") for each in overrides):
                del section[key]


def _plain(value: Any) -> Any:
    """Return `value`; a section becomes plain values, with interpolations resolved."""
    if not OmegaConf.is_config(value):
        return value
    return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
