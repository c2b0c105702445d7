"""Harness: all code that touches the outside world (processes, networks, files, training)."""

import io
import locale
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

# Let torch count GPUs without starting CUDA: forked ranks could not start it again.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def require_own_packages() -> None:
    """Raise ImportError if one of our packages is missing, or hidden by another of its name."""
    root = Path(__file__).parents[1]
    for name in ("compressors", "controllers", "profiles"):
        found = find_spec(name)
        if found is None or found.origin is None:
            raise ImportError(f"{root / name}, which gradnet needs, is not there: install it again")
        if not os.path.samefile(found.origin, root / name / "__init__.py"):
            theirs = found.origin.removesuffix("/__init__.py")
            raise ImportError(f"{theirs} hides gradnet's package `{name}`: give it another name")


def allow_all_letters() -> None:
    """Use UTF-8 for files under an ASCII locale, and print `?` for characters a stream lacks.

    Names, units and tables have letters beyond ASCII, and no command may fail because of them.
    """
    if locale.getencoding().lower() in ("ascii", "us-ascii", "ansi_x3.4-1968", "646"):
        with suppress(locale.Error):  # a system without C.UTF-8 keeps its locale
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")


require_own_packages()
allow_all_letters()
