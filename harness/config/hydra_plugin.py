"""Hydra plugin that adds the choices of studies and of the user; importing it registers it."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from harness.config.search_path import CONF, folders


class StudiesSearchPath(SearchPathPlugin):
    """Appends every folder of `search_path.folders` where Hydra composes conf/, and nowhere else.

    Hydra asks plugins for every application of the process, such as a user's own.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folders in their order; of two choices of one name the first counts."""
        if str(CONF) in [element.path for element in search_path.get_path()]:
            for folder in folders():
                if folder != CONF:
                    search_path.append(str(folder), f"file://{folder}")


Plugins.instance().register(StudiesSearchPath)
