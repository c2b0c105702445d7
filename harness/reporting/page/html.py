"""Templates to HTML: all is escaped, nothing is fetched, no path of a machine is told."""

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

HERE = Path(__file__).parent
ABSOLUTE = re.compile(r"(?<![\w.~/…])/(?:[\w.@+~-]+/)+")  # what comes before a file's name


def render(template: str, **values: Any) -> str:
    """The page that `template`, a file beside this one, makes of `values`."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=without_folders,
    )
    style, *scripts = ((HERE / name).read_text() for name in ("style.css", "sort.js", "curves.js"))
    script = "\n".join(f"(() => {{\n{each}}})();" for each in scripts)  # whose names are their own
    return environment.get_template(template).render(
        style=Markup(style), script=Markup(script), **values
    )


def without_folders(value: Any) -> Any:
    """Text whose absolute paths have lost their folders; what is markup stays."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return ABSOLUTE.sub("…/", value)
    return value
