"""Renders templates to self-contained HTML: values are escaped and local folders are hidden."""

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

HERE = Path(__file__).parent
ABSOLUTE = re.compile(r"(?<![\w.~/…])/(?:[\w.@+~-]+/)+")  # the folders of an absolute path


def render(template: str, **values: Any) -> str:
    """Return the HTML of `template`, a file in this folder, filled with `values`."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=without_folders,
    )
    style, *scripts = ((HERE / name).read_text() for name in ("style.css", "sort.js", "curves.js"))
    script = "\n".join(f"(() => {{\n{each}}})();" for each in scripts)  # a scope for each
    return environment.get_template(template).render(
        style=Markup(style), script=Markup(script), **values
    )


def without_folders(value: Any) -> Any:
    """Return text with the folders of absolute paths cut to "…/"; markup and non-text unchanged."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return ABSOLUTE.sub("…/", value)
    return value
