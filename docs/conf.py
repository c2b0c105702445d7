"""The docs as a site: `make docs`. Pages are the repository's Markdown, where it lies."""

from pathlib import Path

from harness import __version__
from harness.cli import reference

project, version, copyright = "gradnet", __version__, "the authors of gradnet"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/reference/*.md", "papers/README.md"]
include_patterns += ["papers/*/README.md", "results/reference/*/README.md"]
exclude_patterns = [".*", "build", "tests", "conf", "harness", "notebooks", "results/[!r]*"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"gradnet {version}"
html_static_path, html_css_files = ["static"], ["site.css"]
html_extra_path = ["site"]  # what leads from the folder to the first page
html_show_search_summary = False  # it would fetch pages, which nothing may from disk
html_show_sphinx = False
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"
suppress_warnings = ["ref.python"]  # a type in a signature may be of any library

reference.write(Path(__file__).parent / "reference")
