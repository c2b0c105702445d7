"""`initial_weights`: a state_dict of the model, plain or of a checkpoint; all else is refused."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.config.scales import composed
from harness.config.settings import BadSetting
from harness.records import checkpoint
from harness.records.checkpoint import BadCheckpoint
from harness.validation import checked
from tests.virtual.runs import simulated

MLP = ("model=mlp", "workers=2", "steps=1", "optimizer.lr=0", "optimizer.weight_decay=0")
WANTED = "must be a file of torch.save with a state_dict, or a checkpoint/model.pt, got "


def asked(path: Path, *words: str) -> Any:
    return checked(composed([*MLP, "network=simulated", f"initial_weights={path}", *words])[0])


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    run = composed([*MLP])[0].run()
    return run.model.build(run.dataset.shape, run.dataset.classes).state_dict()


@pytest.mark.parametrize("form", ["plain", "of a checkpoint"])
def test_a_state_dict_is_what_training_starts_from(form: str, tmp_path: Path, weights) -> None:
    path = tmp_path / "weights.pt"
    content = {"model": weights} if form == "of a checkpoint" else weights
    torch.save(content, path)
    trained = simulated(tmp_path / "run", *MLP, f"initial_weights={path}")
    found = torch.load(trained / "checkpoint/model.pt", weights_only=True)["model"]
    assert all(torch.equal(found[name], value) for name, value in weights.items())


def test_what_differs_from_the_model_is_named_in_a_line(tmp_path: Path, weights) -> None:
    path = tmp_path / "weights.pt"
    first, *_ = weights
    torch.save({f"module.{name}": value for name, value in weights.items()}, path)
    with pytest.raises(BadSetting, match=r"8 missing: 1\.weight, .*; 8 unexpected: module\.1\.w"):
        asked(path)
    torch.save(weights | {first: torch.zeros(3, 3)}, path)
    with pytest.raises(BadSetting, match=r"1 of another shape: 1\.weight is \[3, 3\], not \[256"):
        asked(path)
    torch.save(weights, path)
    with pytest.raises(BadSetting, match=r"does not fit model convnet: \d+ missing") as refused:
        asked(path, "model=convnet")
    assert "\n" not in str(refused.value)
    asked(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello\nworld\n", b"PK\x03\x04 and no more", pickle.dumps({"a": 1}), torch.zeros(3),
     {}, [1], {"state_dict": {}, "epoch": 3}, torch.nn.Linear(2, 2)],
)  # fmt: skip
def test_a_file_without_weights_is_refused_in_a_line(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(BadSetting) as refused:
        asked(path)
    said = str(refused.value)
    assert said.startswith(f"initial_weights: {WANTED}") and "\n" not in said


@pytest.mark.parametrize("follows", [b"", b"a zip file"])
def test_a_file_of_before_torch_1_6_is_refused_with_what_to_do(follows, tmp_path, weights):
    """It is a pickle that may grow without bound; torch would read it also before a zip file."""
    path, archive = tmp_path / "weights.pt", tmp_path / "archive.pt"
    torch.save(weights, path, _use_new_zipfile_serialization=False)
    torch.save(weights, archive)
    path.write_bytes(path.read_bytes() + (archive.read_bytes() if follows else b""))
    with pytest.raises(BadSetting, match="no zip file: load it and save it again with torch 1.6"):
        asked(path)
    with pytest.raises(BadCheckpoint, match=r"weights.pt is damaged: it is no zip file"):
        checkpoint.load(tmp_path, "weights.pt", torch.device("cpu"))


@pytest.mark.parametrize("name", ["nosuch.pt", ".", "x" * 300])
def test_no_file_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="^initial_weights must be a "):
        asked(tmp_path / name)
