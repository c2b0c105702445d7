"""Text of the standard library: bytes as they are, no module in both splits."""

from pathlib import Path

import pytest
import torch

from harness.workloads.data import stdlib_text
from harness.workloads.data.loader import shard
from harness.workloads.data.stdlib_text import OTHER, StdlibText, modules, split


def test_no_module_is_in_both_splits_and_there_are_megabytes():
    train, test = split(modules())
    assert not set(train) & set(test) and len(train) + len(test) == len(modules()) > 100
    assert sum(path.stat().st_size for path in train) > 2_000_000
    assert {path.stem for path in (*train, *test)} >= {"ast", "random", "zipfile"} & {
        path.stem for path in modules()
    }


def test_it_is_the_text_byte_for_byte(tmp_path, monkeypatch):
    for number in range(16):
        text = f"# module {number} é\n" * 40
        (tmp_path / f"m{number:02}.py").write_text(text)
    monkeypatch.setattr(stdlib_text, "library", lambda: tmp_path)
    found = torch.cat(
        [inputs.T.flatten() for inputs, _ in shard(StdlibText(window=8).test(), 0, 1)]
    )
    assert len(found) == len(StdlibText(window=8).test()) * 8
    inputs, labels = next(StdlibText(window=40).test().stream([(torch.tensor([0, 1]), ())]))
    read = bytes(inputs.flatten().tolist())
    raw = (tmp_path / "m07.py").read_bytes()[:80]  # every eighth
    assert read == bytes(min(byte, OTHER) for byte in raw) and OTHER in read
    assert torch.equal(inputs.flatten()[1:], labels.flatten()[:-1])


def test_a_library_without_source_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(stdlib_text, "library", lambda: Path(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"no source files .* in {tmp_path}"):
        StdlibText().check()
