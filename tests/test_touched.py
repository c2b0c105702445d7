"""Which tests a change touches: those that import it, and what a yaml may change."""

import subprocess
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from tests import touched

arrows = cache(touched.importers)  # not where tests are collected: it reads every file


def of(*paths: str) -> list[str]:
    return touched.touched(paths, arrows())


def test_a_test_touches_itself_alone() -> None:
    assert of("tests/test_clock.py") == ["tests/test_clock.py"]


def test_a_module_touches_what_stands_above_it_and_not_what_stands_below() -> None:
    found = of("harness/reporting/analysis/metrics.py")
    assert {"tests/analysis/test_metrics.py", "tests/analysis/test_report.py"} <= set(found)
    assert not [path for path in found if path.startswith(("tests/compressors", "tests/emulation"))]


def test_what_everything_stands_on_touches_nearly_everything() -> None:
    every = [path for path in arrows() if touched._is_test(path)]
    assert len(of("harness/records/run_directory.py")) > len(every) / 3
    assert of("tests/conftest.py") == sorted(every)


def test_a_yaml_touches_what_composes() -> None:
    assert "tests/test_settings.py" in of("conf/profile/static.yaml")


def test_an_algorithm_touches_the_laws_of_its_kind() -> None:
    assert "tests/compressors/test_contract.py" in of("compressors/topk.py")


@pytest.mark.parametrize("has_gpu", [True, False])
def test_what_needs_a_gpu_is_asked_of_one(has_gpu: bool) -> None:
    found = of("compressors/topk.py")
    on_gpu = [path for path in found if path.endswith(touched.ON_GPU)]
    assert on_gpu == [path for path in found if "on_gpu" in path] != []
    with mock.patch("torch.cuda.is_available", return_value=has_gpu):
        left = touched.runnable(found)
    assert left == (found if has_gpu else [path for path in found if path not in on_gpu])


def test_text_touches_nothing() -> None:
    assert of("README.md", "docs/runs.md", "no/such/file.py") == []


def test_a_change_is_what_is_committed_what_is_not_and_what_is_new(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("committed", "edited", "same"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "committed").write_text("2")
    git("commit", "-am", "second")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "new").write_text("2")
    assert touched.base_of(tmp_path) == "HEAD~1"
    assert touched.changed("HEAD~1", tmp_path) == {"committed", "edited", "new"}
