"""What is composed is what Hydra composes; only mappings of a part take new keys besides."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from harness.config import search_path, sweep

ASKED = [
    "",
    "seed=3 network=simulated compressor=topk ~eval_every +optimizer.new={a:1} workers=8",
    "network=simulated network/device=v100 profile=markov method=powersgd dataset=cifar10",
    "+experiment=dc2_imagenet_dynamic scale=laptop",
    "+experiment=acp_fig9 scale=laptop method=allreduce",
    "+experiment=quickstart network=wan +controller/delay_source@controller.x=measured",
    "hydra/launcher=joblib hydra.launcher.n_jobs=2 ++workers=8 scale=auto tracker=mlflow",
]
WRONG = ["method=nothing", "+experiment=nothing", "workers.many=3", "~dataset=nothing",
         "method=topk,powersgd"]  # fmt: skip


@pytest.fixture(autouse=True)
def opened() -> Iterator[None]:
    with sweep.hydra():
        yield


def by_hydra(overrides: str) -> DictConfig:
    """Compose in one go, by Hydra alone."""
    loader: Any = GlobalHydra.instance().config_loader()
    return loader.load_configuration("config", overrides.split(), RunMode.RUN)


def plain(config: DictConfig) -> Any:
    """Return plain values, without Hydra's own record of the command line."""
    values: Any = OmegaConf.to_container(config, resolve=False)
    values["hydra"].pop("overrides"), values["hydra"].pop("job")
    return values


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_composed_is_what_hydra_composes(asked: str) -> None:
    for _ in range(2):  # composed, then from what was kept
        assert plain(sweep.load(asked.split())) == plain(by_hydra(asked))


@pytest.mark.parametrize(("chosen", "key", "value"), [
    ("profile=columns", "profile.units", {"rate_mbit": 0.001}),
    ("profile=columns", "profile.where", {"run": 1, "operator": "B"}),
    ("profile=columns", "profile.columns", {"rate_mbit": "kbps", "loss": "lost"}),
    ("profile@profile.up=columns profile=asymmetric", "profile.up.units", {"loss": 0.01}),
    ("network=simulated", "network.device.costs", {"topk": {"element_ns": 2}}),
    ("network=simulated network/device=v100", "network.device.costs.topk", {"bucket_us": 3}),
])  # fmt: skip
def test_keys_can_be_added_to_a_mapping_of_a_part_in_every_form(chosen, key, value):
    text = str(value).replace("'", "").replace(" ", "")
    one_by_one = " ".join(f"{key}.{name}={value[name]}" for name in value).replace("'", "")
    before = sweep.load(chosen.split())
    wanted = OmegaConf.to_container(OmegaConf.select(before, key)) | value
    for said in (f"{key}={text}", f"+{key}={text}", one_by_one.replace(" {", "{")):
        found = sweep.load(f"{chosen} {said.replace(': ', ':')}".split())
        assert OmegaConf.to_container(OmegaConf.select(found, key)) == wanted, said


@pytest.mark.parametrize("key", ["profile.unit", "network.cost", "profile.up.rate"])
def test_no_key_can_be_added_to_a_part(key: str) -> None:
    with pytest.raises(HydraException, match="Could not override"):
        sweep.load(["profile=asymmetric", f"{key}=1"])


@pytest.mark.parametrize("asked", WRONG)
def test_what_is_wrong_is_told_in_hydras_words(asked: str) -> None:
    with pytest.raises(HydraException) as hydras:
        by_hydra(asked)
    with pytest.raises(type(hydras.value)) as ours:
        sweep.load(asked.split())
    assert str(ours.value) == str(hydras.value)


def test_a_file_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(search_path.OWN, str(tmp_path))
    (tmp_path / "compressor").mkdir()
    for share in ("0.5", "0.25"):
        (tmp_path / "compressor" / "mine.yaml").write_text(f"share: {share}\n")
        with sweep.hydra():
            assert sweep.load(["compressor=mine"]).compressor.share == float(share)
    monkeypatch.delenv(search_path.OWN)
    with sweep.hydra(), pytest.raises(MissingConfigException):
        sweep.load(["compressor=mine"])
