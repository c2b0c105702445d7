"""Hydra's loader and repository: they compose what Hydra's own do, in half the time.

What compositions repeat is done once for all of them: files are read, and what every list of
defaults begins with, Hydra's own configuration, is merged. Hydra's way is taken for whatever fails,
so errors are its own. tests/test_loader.py compares what both compose.
"""

import copy
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from hydra._internal import defaults_list as lists
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.defaults_list import Overrides
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import InputDefault, ResultDefault
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from harness.config import plain_yaml
from harness.config.search_path import readable
from harness.config.typed import is_section

Embedded = tuple[str | None, str | None, bool]  # a file, where its content goes, if it is the first


class SearchPathCache:
    """Cache of a search path, kept for as long as no file there comes, goes or changes."""

    def __init__(self, files: dict[str, tuple[int, int]]) -> None:
        self.files = files  # when they were last changed, and their sizes
        self.read: dict[str, ConfigResult | None] = {}  # not to be changed
        self.embedded: dict[Embedded, bytes] = {}  # pickled, which is faster than a copy
        self.begun: dict[tuple[Embedded, ...], bytes] = {}  # what lists of defaults begin with


class KeptFiles(ConfigRepository):
    """Hydra's repository, which reads a file of its search path once for all compositions."""

    shared: ClassVar = SearchPathCache({})
    kept: SearchPathCache | None = None

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Find the files; of a search path that a command line gives to a copy, apart."""
        super().initialize_sources(config_search_path)
        files = dict(_yaml_files(str(source.path) for source in self.sources))
        if self.kept or files != self.shared.files:
            self.kept, first = SearchPathCache(files), self.kept is None
            if first:
                KeptFiles.shared = self.kept
        else:
            self.kept = self.shared

    def __deepcopy__(self, memo: object) -> "KeptFiles":
        """Another whose sources can be replaced; they themselves do not change."""
        return copy.copy(self)

    def load_config(self, config_path: str) -> ConfigResult | None:
        """The file's content, which is not to be changed."""
        assert self.kept
        if config_path not in self.kept.read:
            name = f"{config_path.removesuffix('.yaml')}.yaml"
            with readable(name):
                for file in (f"{source.path}/{name}" for source in self.sources):
                    if file in self.kept.files:
                        plain_yaml.check(plain_yaml.text_of(file))
                self.kept.read[config_path] = super().load_config(config_path)
        return self.kept.read[config_path]


class Loader(ConfigLoaderImpl):
    """Hydra's loader, which merges what many lists of defaults begin with once for all of them."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        self.config_search_path = config_search_path
        self.repository = KeptFiles(config_search_path)

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        if isinstance(default, _Whole):
            return default.result
        embedded, key = _kept(repo).embedded, _key(default)
        if key not in embedded:
            embedded[key] = pickle.dumps(super()._load_single_config(default, repo))
        found: ConfigResult = pickle.loads(embedded[key])
        return found

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        begun = _kept(repo).begun
        after = 1 + next((n for n, each in enumerate(defaults) if each.primary), -1)
        begin, key = defaults[:after], tuple(map(_key, defaults[:after]))
        try:
            if key not in begun:
                begun[key] = pickle.dumps(self._merged(OmegaConf.create(), begin, repo))
            config = self._merged(pickle.loads(begun[key]), defaults[after:], repo)
        except OmegaConfBaseException:
            return super()._compose_config_from_defaults_list(defaults, repo)
        whole = super()._compose_config_from_defaults_list([_Whole(config)], repo)
        _open_mappings(whole)
        return whole

    def _merged(
        self, config: DictConfig, defaults: Sequence[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """`config` with all of `defaults` merged into it, in their order."""
        with flag_override(config, "no_deepcopy_set_nodes", True):
            config.merge_with(*(self._load_single_config(each, repo).config for each in defaults))
        return config


def _open_mappings(config: DictConfig) -> None:
    """Let overrides add keys to mappings of a part, such as `units` of a profile.

    A part is a section with `_target_`, whose class refuses keys that it does not have. A mapping
    in it without `_target_` has keys that the user chooses.
    """
    waiting = [
        (config[key], False) for key in config if key != "hydra" and _is_mapping(config, key)
    ]
    while waiting:
        section, of_part = waiting.pop()
        is_part = is_section(section)
        if of_part:
            OmegaConf.set_struct(section, is_part)
        of_part = of_part or is_part
        waiting += [(section[key], of_part) for key in section if _is_mapping(section, key)]


def _is_mapping(section: DictConfig, key: Any) -> bool:
    node = section._get_node(key)
    return isinstance(node, DictConfig) and not (node._is_none() or node._is_interpolation())


class _Whole(ResultDefault):
    """In place of a list of defaults, what they were merged into."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__()
        self.result = ConfigResult("", "", config, {})


def _kept(repo: Any) -> SearchPathCache:
    """Return the cache behind Hydra's repository of one composition."""
    kept: SearchPathCache = repo.delegate.kept
    return kept


def _key(default: ResultDefault) -> Embedded:
    return default.config_path, default.package, default.primary


def _yaml_files(folders: Iterable[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Path, and time of the last change in ns and size in bytes, of all yaml below `folders`."""
    for folder in filter(None, folders):
        for place, _, names in os.walk(folder):
            for path in (os.path.join(place, name) for name in names if name.endswith(".yaml")):
                told = os.stat(path)
                yield path, (told.st_mtime_ns, told.st_size)


_NO_CHOICES = DictConfig({})
_map_of_choices = lists._create_interpolation_map


def _map_if_read(
    overrides: Overrides, defaults_list: list[InputDefault], self_added: bool
) -> DictConfig:
    """The map that interpolations in a list of defaults read; where there is none, it is empty.

    Hydra makes it for every list, which was a quarter of a composition.
    """
    if any(not each.is_self() and each.is_interpolation() for each in defaults_list):
        return _map_of_choices(overrides, defaults_list, self_added)
    return _NO_CHOICES


lists._create_interpolation_map = _map_if_read
