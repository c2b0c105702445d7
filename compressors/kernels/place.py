"""Where numba keeps the machine code of these kernels: in one place, wherever their sources lie."""

import os
from collections.abc import Callable
from typing import Any

from numba.core.caching import InTreeCacheLocator


class OfEqualSources(InTreeCacheLocator):
    """The folder NUMBA_CACHE_DIR, whose name is of the content of all sources.

    Numba's own locators add the path of the source, so that every copy of the project, and every
    environment that it is installed in, would compile the same for half a minute.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = os.environ["NUMBA_CACHE_DIR"]

    def get_source_stamp(self) -> str:
        """Return "": the folder's name has all that must be equal for code to be used again."""
        return ""
