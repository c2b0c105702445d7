"""What is installed from the wheel: packages with types, every choice, every published number."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from harness import __version__

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gradnet", "compressors", "controllers", "profiles", "harness", "papers")
BUILT_OF = ("pyproject.toml", "README.md", "LICENSE", "conf", *PACKAGES)
LEFT_OUT = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built of a copy, as a build writes beside its sources."""
    place = tmp_path_factory.mktemp("wheel")
    for name in BUILT_OF:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, place)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", place / "dist", place], check=True)
    [made] = (place / "dist").glob("*.whl")
    return made


def test_it_has_every_module_choice_published_table_and_the_word_that_it_is_typed(wheel):
    packed = set(ZipFile(wheel).namelist())
    wanted = [
        str(file.relative_to(ROOT))
        for folder in ("conf", *PACKAGES)
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".yaml", ".html", ".css", ".js", ".typed")
        or file.name == "published.csv"
        or (file.parent.name == "traces" and file.is_file())
    ]
    assert len(wanted) > 500 and sorted(set(wanted) - packed) == []
    assert {f"{name}/py.typed" for name in PACKAGES} <= packed


def test_it_is_of_this_version_and_brings_the_commands(wheel):
    assert wheel.name.startswith(f"gradnet-{__version__}-py3-none-any")
    with ZipFile(wheel) as packed:
        entries = packed.read(f"gradnet-{__version__}.dist-info/entry_points.txt").decode()
    assert "gradnet = harness.cli.main:main" in entries


def test_what_is_pinned_installs_with_the_first_python_that_is_enough():
    """Whose third number is 0; a distribution keeps the one that it began with."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        enough = tomllib.load(file)["project"]["requires-python"]
    first = f"{enough.removeprefix('>=')}.0"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    names = {pin.name for pin in pins if pin.marker is None or pin.marker.evaluate()}
    for_gpus = re.findall(r"^([\w-]+)==", (ROOT / "requirements-torch.lock").read_text(), re.M)
    names -= {name for name in for_gpus if find_spec("triton") is None and "torch" not in name}
    asked = {name: distribution(name).metadata["Requires-Python"] or "" for name in names}
    assert len(asked) > 100
    assert {name: of for name, of in asked.items() if first not in SpecifierSet(of)} == {}


def needs(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Names of all distributions that `name` needs on this machine, itself among them."""
    found = {canonicalize_name(name)}
    for line in distribution(name).requires or []:
        asked = Requirement(line)
        marker = asked.marker
        if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras)):
            found |= needs(asked.name, frozenset(asked.extras))
    return found


def test_every_file_that_the_wheel_needs_is_known_by_its_hash():
    pinned = {}
    locks = "".join((ROOT / f"requirements{of}.lock").read_text() for of in ("", "-torch"))
    for entry in locks.replace("\\\n", " ").splitlines():
        if not entry.startswith("#"):
            asked, *hashes = entry.split(" --hash=sha256:")
            assert hashes and all(len(each.strip()) == 64 for each in hashes), entry
            pinned[canonicalize_name(Requirement(asked).name)] = asked.strip()
    assert needs("gradnet") - {"gradnet"} <= set(pinned)
    others = (ROOT / "constraints.txt").read_text().splitlines()
    assert set(pinned.values()) - set(others) == set()


@pytest.mark.launch
@pytest.mark.long
def test_installed_it_runs_from_any_folder_with_choices_of_ones_own(wheel, tmp_path):
    """Into a folder of its own, and with the packages of others that this Python has."""
    place, work = tmp_path / "installed", tmp_path / "work"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", place, wheel], check=True)
    (work / "mine" / "profile").mkdir(parents=True)
    own = "_target_: profiles.static.Static\nrate_mbit: 20\n"
    (work / "mine" / "profile" / "office.yaml").write_text(own)
    asked = ["--config-dir", "mine", "profile=office", "network=simulated", "workers=2", "steps=2"]
    asked += ["model=mlp", "report=false"]
    known = os.environ | {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    known["GRADNET_KERNELS"] = "numpy"  # compiled ones would be compiled anew there
    command = [sys.executable, "-m", "gradnet", *asked]
    done = subprocess.run(command, cwd=work, env=known, capture_output=True, text=True)
    assert done.returncode == 0 and "succeeded: " in done.stdout, done.stdout + done.stderr
    [told] = (work / "results").glob("*/*/config.yaml")
    assert "rate_mbit: 20" in told.read_text()
    where = [sys.executable, "-c", "import gradnet, harness; print(harness.__file__)"]
    found = subprocess.run(where, cwd=work, env=known, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(place)
