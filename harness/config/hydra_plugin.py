"""Hydra plugin that adds the choices of studies and of the user. Importing it registers it."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from harness.config.search_path import CONF, folders


class StudiesSearchPath(SearchPathPlugin):
    """Plugin that appends the folders of `search_path.folders` if Hydra composes our conf/.

    Hydra also asks it for other applications in the process, whose paths stay as they are.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folders in order. If two of them have a choice of one name, the first wins."""
        if str(CONF) in [element.path for element in search_path.get_path()]:
            for folder in folders():
                if folder != CONF:
                    search_path.append(str(folder), f"file://{folder}")


Plugins.instance().register(StudiesSearchPath)
