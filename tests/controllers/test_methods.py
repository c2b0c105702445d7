"""Method presets: they compose, their values can be overridden, and unknown names are refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from harness.config.search_path import choices, folders

METHODS = list(choices("method"))
GROUPS = ("activations", "compressor", "controller", "method", "parallel")
PRIMARY = """
defaults:
  - _self_
  - parallel: data
  - activations: dense
  - compressor: dense
  - controller: fixed
  - method: allreduce
seed: 0
workers: 4
workers_per_node: 1
profile: { _target_: profiles.static.Static, rate_mbit: 100 }
error_feedback: false
controller: {agree: local}
"""


@pytest.fixture
def conf(tmp_path: Path) -> Iterator[None]:
    """The groups of a method, and those that they name, under a primary config of their own."""
    for group in GROUPS:
        (tmp_path / group).symlink_to(Path("conf", group).resolve())
    studies = [f"file://{folder}" for folder in folders()[1:]]
    (tmp_path / "primary.yaml").write_text(f"{PRIMARY}hydra: {{searchpath: {studies}}}\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        yield


def composed(*overrides: str) -> dict[str, Any]:
    config = OmegaConf.to_container(compose("primary", list(overrides)), resolve=True)
    assert isinstance(config, dict)
    return config


@pytest.mark.parametrize("method", METHODS)
def test_a_method_composes_into_parts_that_go_together(conf: None, method: str) -> None:
    config = composed(f"method={method}")
    assert isinstance(config["error_feedback"], bool)
    agree = config["controller"].pop("agree")
    assert agree in ("local", "min", "mean")
    controller = instantiate(config["controller"])  # refuses a key left over from another
    same = controller.same_everywhere
    assert same or agree != "local" or not instantiate(config["compressor"]).uniform_density


def test_the_command_line_overrides_a_method(conf: None) -> None:
    config = composed(
        "method=topk", "controller.density=0.1", "controller.density=0.02", "error_feedback=false"
    )
    assert config["controller"]["density"] == 0.02
    assert config["error_feedback"] is False
    assert composed("method=dc2_da2", "controller.k_0=0.2")["controller"]["k_0"] == 0.2
    config = composed("method=topk", "controller.density=0.1", "compressor=sampled_topk")
    assert config["compressor"]["_target_"].endswith("SampledTopK")


def test_a_controller_leaves_no_key_behind(conf: None) -> None:
    assert "density" not in composed("method=dc2_da1")["controller"]
    assert "k_0" not in composed("method=topk", "controller.density=0.1")["controller"]


@pytest.mark.parametrize("group", ["method", "compressor", "controller"])
def test_an_unknown_name_is_refused_with_the_choices(conf: None, group: str) -> None:
    with pytest.raises(HydraException, match="(?s)nonesuch.*Available options.*"):
        composed(f"{group}=nonesuch")


def test_an_unknown_key_is_refused(conf: None) -> None:
    with pytest.raises(HydraException, match="densty"):
        composed("method=topk", "controller.density=0.1", "controller.densty=0.1")
