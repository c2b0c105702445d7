"""What is installed from the wheel: packages with types, every choice, every published number."""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

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
        or file.parent.name == "traces"
    ]
    assert len(wanted) > 500 and sorted(set(wanted) - packed) == []
    assert {f"{name}/py.typed" for name in PACKAGES} <= packed


def test_it_is_of_this_version_and_brings_the_commands(wheel):
    assert wheel.name.startswith(f"gradnet-{__version__}-py3-none-any")
    with ZipFile(wheel) as packed:
        entries = packed.read(f"gradnet-{__version__}.dist-info/entry_points.txt").decode()
    assert "gradnet = harness.__main__:main" in entries
    assert "gradnet-around = harness.around.__main__:main" in entries
