"""Where Hydra finds choices: conf/, then the conf/ of every study; importing it tells Hydra so."""

from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from harness.studies import studies

CONF = Path(__file__).resolve().parents[2] / "conf"


class StudiesSearchPath(SearchPathPlugin):
    """Adds the choices of the studies to whatever Hydra is asked to compose."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for study in studies():
            if folder := study.file("conf"):
                search_path.append(f"study {study.name}", f"file://{folder}")


def folders() -> list[Path]:
    """Folders of configuration in Hydra's order: of two choices of one name the first counts."""
    return [CONF, *(found for study in studies() if (found := study.file("conf")))]


def choices(group: str) -> dict[str, Path]:
    """The yaml of each choice of a group such as `network/device`, by name."""
    files = [file for folder in folders() for file in sorted((folder / group).glob("*.yaml"))]
    first = {file.stem: file for file in reversed(files)}
    return dict(sorted(first.items()))


def groups(group: str = "") -> list[str]:
    """The groups within `group`, of a run without one, such as `network/device`."""
    inside = {path for folder in folders() for path in (folder / group).glob("*") if path.is_dir()}
    return sorted({str(Path(group, path.name)) for path in inside})


Plugins.instance().register(StudiesSearchPath)
