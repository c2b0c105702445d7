"""Small data sets in the real formats: CIFAR's Python batches, ImageNet's class folders."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from harness.workloads.data import clicks
from harness.workloads.data.cifar import FILES
from harness.workloads.data.pairs import PACKAGED

IMAGES_PER_FILE = 20
PTB_WORDS = 60  # different ones, <eos> included


def write_cifar(folder: Path, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write every file of the archive and have torchvision expect these files' checksums."""
    name, files = FILES[classes]
    (folder / name).mkdir()
    source = np.random.default_rng(0)
    sums = {}
    for file in files:
        labels = "labels" if classes == 10 else "fine_labels"
        content: dict[str, object] = {
            "data": source.integers(0, 256, (IMAGES_PER_FILE, 3072), dtype=np.uint8),
            labels: source.integers(0, classes, IMAGES_PER_FILE).tolist(),
        }
        if "meta" in file:
            key = "label_names" if classes == 10 else "fine_label_names"
            content = {key: [f"class {number}" for number in range(classes)]}
        raw = pickle.dumps(content, protocol=2)
        (folder / name / file).write_bytes(raw)
        sums[file] = hashlib.md5(raw).hexdigest()

    published = {10: datasets.CIFAR10, 100: datasets.CIFAR100}[classes]
    for split in ("train_list", "test_list"):
        expected = [[file, sums[file]] for file, _ in getattr(published, split)]
        monkeypatch.setattr(published, split, expected)
    meta = published.meta | {"md5": sums[published.meta["filename"]]}
    monkeypatch.setattr(published, "meta", meta)


def write_ptb(folder: Path, lines: int = 200) -> None:
    """Write texts as Mikolov's archive has them: a space before and after every word."""
    source = np.random.default_rng(0)
    known = ["<unk>", "N", "$", *(f"word{number}" for number in range(PTB_WORDS - 4))]
    (folder / "ptb").mkdir()
    for split, count in (("train", lines), ("valid", lines // 10), ("test", lines // 4)):
        text = [source.choice(known, source.integers(3, 30)).tolist() for _ in range(count)]
        if split == "train":
            text[0] = known
        written = "".join(f" {' '.join(line)} \n" for line in text)
        (folder / "ptb" / f"ptb.{split}.txt").write_text(written)


def write_criteo(folder: Path, lines: int = 140) -> None:
    """Write train.txt as Criteo's challenge has it, of which clicks are generated."""
    (folder / "criteo").mkdir()
    text = clicks.lines(lines, seed=1)
    (folder / "criteo" / "train.txt").write_text("".join(text))


def write_pairs(folder: Path, other_test: bool = False) -> None:
    """Write German and English as in message catalogues, some of them."""
    place = folder / "iwslt14_de_en"
    place.mkdir()
    for split, first, count in (("train", 0, 40), ("test", 60 if other_test else 20, 12)):
        text = (PACKAGED / f"{split}.tsv").read_text().splitlines(keepends=True)
        (place / f"{split}.tsv").write_text("".join(text[first : first + count]))


def write_folders(folder: Path, classes: int, train: int, val: int) -> None:
    """Write JPEG files of different sizes, `train` and `val` to a class."""
    source = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            place = folder / split / f"n{label:08}"
            place.mkdir(parents=True)
            for number in range(count):
                size = (*source.integers(20, 40, 2), 3)
                pixels = source.integers(0, 256, size, dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{place.name}_{number}.JPEG")
