"""Cache folder of the kernels' machine code, the same for every copy of equal sources."""

import os
from collections.abc import Callable
from typing import Any

from numba.core.caching import InTreeCacheLocator


class OfEqualSources(InTreeCacheLocator):
    """Locator of numba's cache: the folder NUMBA_CACHE_DIR, named after a hash of all sources.

    Numba's own locators add the path of the source. Every copy of the project, and every
    environment with it, would then compile the same code for half a minute.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = os.environ["NUMBA_CACHE_DIR"]

    def get_source_stamp(self) -> str:
        """Return "", because the folder's name already has everything that must be equal."""
        return ""
