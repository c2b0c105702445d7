"""What is composed is, to the last value, what Hydra's own loader composes.

Only mappings of a part differ: overrides may add keys to them.
"""

from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from harness.config import loader
from harness.config.search_path import CONF

ASKED = [
    "",
    "seed=3 network=simulated compressor=topk ~eval_every +optimizer.new={a:1} workers=8",
    "network=simulated network/device=v100 profile=markov method=powersgd dataset=cifar10",
    "+experiment=dc2_imagenet_dynamic scale=laptop",
    "+experiment=acp_fig9 scale=laptop method=allreduce",
    "+experiment=dc2_imagenet_static hydra/job_logging=disabled",
    "+experiment=quickstart network=wan +controller/delay_source@controller.x=measured",
    "hydra/launcher=joblib hydra.launcher.n_jobs=2 ++workers=8 scale=auto tracker=mlflow",
]
WRONG = [
    "method=nothing",
    "+experiment=nothing",
    "workers.many=3",
    "~dataset=nothing",
    "method=topk,powersgd",
]


class Composed:
    """Hydra's loader and ours, at one search path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patched = monkeypatch
        where: Any = GlobalHydra.instance().config_loader()
        self._where = where.config_search_path
        self.ours = loader.Loader(self._where)

    def by_hydra(self, overrides: str) -> DictConfig:
        """Composed by what has nothing of ours."""
        with self._patched.context() as patched:
            patched.setattr(defaults_list, "_create_interpolation_map", loader._map_of_choices)
            hydras = ConfigLoaderImpl(self._where)
            return hydras.load_configuration("config", overrides.split(), RunMode.RUN)

    def by_us(self, overrides: str) -> DictConfig:
        return self.ours.load_configuration("config", overrides.split(), RunMode.RUN)

    def both_are_one(self, overrides: str) -> None:
        hydras = _flat(self.by_hydra(overrides))
        for _ in range(2):  # read and merged, then kept
            assert _flat(self.by_us(overrides)) == hydras, overrides


def _flat(node: Any, path: str = "") -> list[tuple[str, str, Any]]:
    """Path, kind, flags and plain value of a configuration's nodes, in order."""
    flags = {flag: on for flag, on in (node._metadata.flags or {}).items() if flag != "struct"}
    told = [(path, type(node).__name__, flags, node._metadata.ref_type)]
    if not isinstance(node, DictConfig) or node._is_none() or node._is_missing():
        value = node._value() if not OmegaConf.is_config(node) else None
        return [(*told[0], value)]
    return [*told, *(x for key in node for x in _flat(node._get_node(key), f"{path}.{key}"))]


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="harness"):
        yield Composed(monkeypatch)


def test_what_is_composed_is_what_hydra_composes(composed: Composed) -> None:
    for asked in ASKED:
        composed.both_are_one(asked)


@pytest.mark.parametrize(
    ("chosen", "key", "value"),
    [
        ("profile=columns", "profile.units", {"rate_mbit": 0.001}),
        ("profile=columns", "profile.where", {"run": 1, "operator": "B"}),
        ("profile=columns", "profile.columns", {"rate_mbit": "kbps", "loss": "lost"}),
        ("profile@profile.up=columns profile=asymmetric", "profile.up.units", {"loss": 0.01}),
        ("network=simulated", "network.device.costs", {"topk": {"element_ns": 2}}),
        ("network=simulated network/device=v100", "network.device.costs.topk", {"bucket_us": 3}),
    ],
)
def test_keys_can_be_added_to_a_mapping_of_a_part_in_every_form(
    composed: Composed, chosen: str, key: str, value: dict[str, Any]
) -> None:
    text = str(value).replace("'", "").replace(" ", "")
    one_by_one = " ".join(f"{key}.{name}={value[name]}" for name in value).replace("'", "")
    before = composed.by_us(chosen)
    wanted = OmegaConf.to_container(OmegaConf.select(before, key)) | value
    for said in (f"{key}={text}", f"+{key}={text}", one_by_one.replace(" {", "{")):
        found = composed.by_us(f"{chosen} {said.replace(': ', ':')}")
        assert OmegaConf.to_container(OmegaConf.select(found, key)) == wanted, said


@pytest.mark.parametrize("key", ["profile.unit", "network.cost", "profile.up.rate"])
def test_no_key_can_be_added_to_a_part(composed: Composed, key: str) -> None:
    with pytest.raises(HydraException, match="Could not override"):
        composed.by_us(f"profile=asymmetric {key}=1")


def test_what_is_wrong_is_told_in_hydras_words(composed: Composed) -> None:
    for asked in WRONG:
        with pytest.raises(HydraException) as hydras:
            composed.by_hydra(asked)
        with pytest.raises(type(hydras.value)) as ours:
            composed.by_us(asked)
        assert str(ours.value) == str(hydras.value)


def test_what_cannot_be_merged_is_told_in_hydras_words(composed: Composed, tmp_path: Path) -> None:
    (tmp_path / "compressor").mkdir()
    (tmp_path / "compressor" / "listed.yaml").write_text("# @package hydra.launcher\n- 1\n- 2\n")
    asked = f"hydra.searchpath=[file://{tmp_path}] compressor=listed"
    with pytest.raises(HydraException) as hydras:
        composed.by_hydra(asked)
    with pytest.raises(HydraException, match="In 'compressor/listed': ") as ours:
        composed.by_us(asked)
    assert str(ours.value) == str(hydras.value)


def test_a_file_that_changes_or_that_another_search_path_has_is_read(
    composed: Composed, tmp_path: Path
) -> None:
    folder = tmp_path / "compressor"
    folder.mkdir()
    searched = f"hydra.searchpath=[file://{tmp_path}] compressor="
    for name, text in (("mine", "share: 0.5\n"), ("mine", "share: 0.25\n"), ("topk", "a: 1\n")):
        (folder / f"{name}.yaml").write_text(text)
        composed.both_are_one(f"{searched}{name}")
        composed.both_are_one("compressor=topk")
    assert composed.by_us(f"{searched}mine").compressor.share == 0.25
    with pytest.raises(MissingConfigException):
        composed.by_us("compressor=mine")
