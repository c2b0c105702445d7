"""scripts/install.py: which build of torch is taken, and what is said of it."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("install", ROOT / "scripts/install.py")
install = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(install)


@pytest.fixture
def nothing_to_install(tmp_path, monkeypatch):
    """An index that is not there, and locks and environment without a package; pip is the real."""
    for name in ("LOCK", "TORCH_LOCK"):
        monkeypatch.setattr(install, name, tmp_path / name)
        (tmp_path / name).write_text("# torch==2.15.0 \\\n")
    monkeypatch.setattr(install, "LOG", tmp_path / "install.log")
    monkeypatch.setattr(install, "CPU_INDEX", f"file://{tmp_path}/nowhere")
    monkeypatch.setattr(install, "PIP", [*install.PIP, "--dry-run", "--no-index"])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def test_without_the_cpu_build_the_default_is_taken_in_a_line(nothing_to_install, capsys):
    (nothing_to_install / "TORCH_LOCK").write_text("torch==0.0.1 \\\n")
    assert not install.install_torch("cpu", asked="cpu")
    assert capsys.readouterr().out == ""
    install.install_torch("cpu", asked="auto")
    [line] = capsys.readouterr().out.splitlines()
    assert "4.3 GB" in line and "TORCH=cpu insists" in line
    assert "torch==0.0.1+cpu" in (nothing_to_install / "install.log").read_text()


@pytest.mark.parametrize(
    ("asked", "has_driver", "machine", "build"),
    [("auto", False, "x86_64", "cpu"), ("auto", True, "x86_64", "cuda"),
     ("auto", False, "aarch64", "cuda"), ("cuda", False, "x86_64", "cuda"),
     ("cpu", True, "x86_64", "cpu")],
)  # fmt: skip
def test_the_cpu_build_is_for_x86_64_without_a_driver_unless_asked_for(
    monkeypatch, tmp_path, asked, has_driver, machine, build
):
    monkeypatch.setattr(install, "NVIDIA_DRIVER", tmp_path if has_driver else tmp_path / "none")
    monkeypatch.setattr(install.platform, "machine", lambda: machine)
    assert install.chosen_build(asked) == build


def test_a_failing_pip_shows_the_end_of_its_log(nothing_to_install, monkeypatch, capsys):
    (nothing_to_install / "LOCK").write_text("no_such_package_here==1 --hash=sha256:00\n")
    assert install.main("package", "cuda") == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("installing the package, torch for cuda, into ")
    assert last == f"pip failed; all it said is in {install.LOG}"
