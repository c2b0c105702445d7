"""A command whose files have other contents is another run."""

import os
from pathlib import Path

import pytest

from harness.around import named_files
from harness.around.settings import composed

NAMED = {  # words of a command, and the file in its folder that changes
    "a script": (["python", "train.py"], "train.py"),
    "an option's value": (["python", "train.py", "--config=base.yaml"], "base.yaml"),
    "the word after an option": (["python", "train.py", "--config", "c/a b.yaml"], "c/a b.yaml"),
    "a value with a space": (["python", "train.py", "--config=c/a b.yaml"], "c/a b.yaml"),
    "a short option": (["python", "train.py", "-cbase.yaml"], "base.yaml"),
    "arguments of a file": (["python", "train.py", "@more.txt"], "more.txt"),
    "a value from a file": (["python", "train.py", "weights=@more.txt"], "more.txt"),
    "one of several": (["python", "train.py", "--data=base.yaml,more.txt"], "more.txt"),
    "a key of Hydra": (["python", "train.py", "+file=base.yaml"], "base.yaml"),
    "a module": (["python", "-m", "single"], "single.py"),
    "a package": (["python", "-m", "package"], "package/__main__.py"),
    "another file of a package": (["python", "-m", "package.deep.train"], "package/model.py"),
    "its settings": (["python", "-m", "package"], "package/deep/base.yaml"),
    "a module of torchrun": (["torchrun", "-m", "package.deep.train"], "package/deep/train.py"),
    "likewise by its long option": (["python", "run.py", "--module=package"], "package/model.py"),
    "a folder that Python runs": (["python", "package"], "package/model.py"),
    "words of a shell": (["sh", "-c", "cd . && python train.py --config=base.yaml"], "base.yaml"),
    "a module of a shell": (["sh", "-c", "python -m package --lr 1"], "package/model.py"),
    "a file of one node": (["python", "train.py", "--config=of{rank}.yaml"], "of1.yaml"),
    "a program": (["./run.sh"], "run.sh"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for _, name in NAMED.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("kind", NAMED)
def test_another_content_is_another_run(kind: str, folder: Path) -> None:
    words, name = NAMED[kind]
    before = named_files.digests(words)
    assert named_files.digests(words) == before
    (folder / name).write_text("#!/bin/sh\ntrue\n")
    assert named_files.digests(words) != before


def test_the_run_id_depends_on_them_and_on_nothing_beside(folder: Path) -> None:
    def run_id() -> str:
        [run] = composed(["workers=2", "--", "python", "train.py", "--config=base.yaml"])
        return run.run_id()

    before = run_id()
    (folder / "more.txt").write_text("not named")
    os.utime(folder / "base.yaml", (0, 0))
    assert run_id() == before
    (folder / "base.yaml").write_text("lr: 0.2")
    assert run_id() != before


def test_a_program_of_the_search_path_counts_unless_it_is_installed(folder, monkeypatch):
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    assert set(named_files.digests(["run.sh"])) == {"run.sh"}
    assert named_files.digests(["sh", "-c", "true"]) == {}


def test_of_an_installed_package_only_the_module_counts() -> None:
    [path] = named_files._sources("torch.distributed.run")
    assert path.name == "run.py"
    assert named_files._sources("no_such_package.train") == []


def test_a_file_that_is_too_large_to_read_counts_by_its_time(folder, monkeypatch):
    monkeypatch.setattr(named_files, "MOST_BYTES", 1)
    before = named_files.digests(["python", "base.yaml"])
    os.utime(folder / "base.yaml", (0, 0))
    assert named_files.digests(["python", "base.yaml"]) != before
