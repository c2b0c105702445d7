"""Laws of every data set: each yaml of conf/dataset is tested by being there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from harness.workloads.data.loader import Batches, shard
from tests.data.files import (
    PTB_WORDS,
    write_cifar,
    write_criteo,
    write_folders,
    write_pairs,
    write_ptb,
)

CHOICES = {path.stem: path for path in sorted(Path("conf/dataset").glob("*.yaml"))}
ON_DISK = ("cifar10", "cifar100", "criteo", "imagenet", "iwslt14_de_en", "ptb")
CLICKS, PAIRS = ("clicks", "criteo"), ("catalogues", "iwslt14_de_en")
TEXTS = ("ptb", "pydoc", "stdlib", *PAIRS)


def build(name: str, folder: Path, **overrides: Any) -> Any:
    """The data set, on small files of the real format where it needs files."""
    if name in ON_DISK:
        overrides |= {"folder": str(folder)}
    if name == "imagenet":
        overrides |= {"classes": 3, "workers": 0, "size": 16}
    if name == "ptb":
        overrides |= {"vocabulary": PTB_WORDS}
    if name in CLICKS:
        overrides |= {"cache": str(folder / "cache"), "rows": 20}
    if name == "clicks":
        overrides |= {"length": 700}
    if name == "glyphs":
        overrides |= {"cache": str(folder / "cache"), "length": 400, "test_length": 200}
    if name in PAIRS:
        overrides |= {"cache": str(folder / "cache"), "vocabulary": 400, "words": 100}
    part = OmegaConf.merge(OmegaConf.load(CHOICES[name]), overrides)
    return instantiate(OmegaConf.create({"seed": 0, "part": part}).part)


@pytest.fixture(params=CHOICES)
def data(request, tmp_path, monkeypatch):
    name = request.param
    if name.startswith("cifar"):
        write_cifar(tmp_path, int(name.removeprefix("cifar")), monkeypatch)
    if name == "imagenet":
        write_folders(tmp_path / "imagenet", classes=3, train=8, val=4)
    if name == "ptb":
        write_ptb(tmp_path)
    if name == "criteo":
        write_criteo(tmp_path)
    if name == "iwslt14_de_en":
        write_pairs(tmp_path)
    return build(name, tmp_path)


def test_batches_have_the_promised_shape(data):
    data.check()
    inputs, labels = next(iter(Batches(data.train(), 4, 0, 2, seed=0)))
    text = data.name in TEXTS
    if data.name in PAIRS:  # as long as the longest sentence among them
        assert inputs.shape == (4, 2, labels.shape[1]) and labels.shape[1] <= data.words
        labels = labels.clamp(min=0)  # where a sentence has ended there is none
    else:
        assert inputs.shape == (4, *data.shape)
        assert labels.shape == ((4, *data.shape) if text else (4,))
    assert inputs.dtype == (torch.int64 if text else torch.float32)
    assert labels.dtype == torch.int64
    assert 0 <= labels.min() and labels.max() < data.classes
    expected = "bleu" if data.name in PAIRS else "perplexity" if text else "accuracy"
    assert data.metric == expected


def test_name_is_the_files(data):
    assert data.name in CHOICES


def test_images_are_about_normal_and_words_are_numbered(data):
    parts = [inputs for inputs, _ in shard(data.test(), 0, 1)]
    if data.name in TEXTS:
        assert all(0 <= inputs.min() and inputs.max() < data.classes for inputs in parts)
        return
    inputs = torch.cat(parts)
    if data.name == "passages":
        assert 0 <= inputs.min() and inputs.max() < data.vocabulary
        assert torch.equal(inputs, inputs.round())
        return
    if data.name in CLICKS:
        counts, categories = inputs[:, :13], inputs[:, 13:]
        assert 0 <= counts.min() and 0.5 < counts.std() < 5
        assert torch.equal(categories, categories.round())
        assert 0 <= categories.min() and categories.max() < data.rows
        return
    assert inputs.isfinite().all() and inputs.abs().max() < 30
    assert 0.2 < inputs.std() < 5


def test_same_seed_same_batches_whatever_ran_before(data):
    first = take(data, seed=5)
    torch.manual_seed(99)
    torch.rand(7)
    assert all(
        torch.equal(x, u) and torch.equal(y, v)
        for (x, y), (u, v) in zip(first, take(data, seed=5), strict=True)
    )
    same = [torch.equal(x, u) for (x, _), (u, _) in zip(first, take(data, seed=6), strict=True)]
    assert all(same) == data.train().in_order  # a text is read as it is


def take(data: Any, seed: int) -> list[Any]:
    stream = iter(Batches(data.train(), 4, 1, 2, seed))
    return [next(stream) for _ in range(4)]


def test_loading_leaves_the_global_generator_alone(data):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    take(data, seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_every_test_sample_is_evaluated_once(data):
    test = data.test()
    seen = sum(len(labels) for rank in range(3) for _, labels in shard(test, rank, 3))
    assert seen == len(test)


@pytest.mark.parametrize("name", ON_DISK)
def test_missing_files_give_one_clear_message(name, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        build(name, tmp_path).check()
    message = str(error.value)
    for part in (f"{name} not found in {tmp_path}", "Expected", "scale=laptop", "GRADNET_DATA"):
        assert part in message
