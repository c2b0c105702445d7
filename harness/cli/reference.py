"""Command `study reference FOLDER`: write the reference pages of the docs from the code.

Pages of classes show docstrings, fields and the comments beside them. The code is parsed, not
imported. The page of settings has the texts of `python -m harness --help`.
"""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness import constraints
from harness.cli import help
from harness.config.search_path import CONF, choices, folders, groups
from harness.records.outputs import OutputFolder

ROOT = CONF.parent
TARGET = re.compile(r"^_target_: *([\w.]+)", re.MULTILINE)
OF_AN_ERROR = ("BaseException", "Exception", "ValueError", "RuntimeError")


class ReferencePage(NamedTuple):
    """A page of classes: its title, its introduction, and the folder of its code."""

    title: str
    about: str
    folder: str
    only_protocols: bool = False


PAGES = {
    "compressors": ReferencePage(
        "Compressors", "What of a gradient is sent. `compressor=NAME` chooses one.", "compressors"
    ),
    "controllers": ReferencePage(
        "Controllers",
        "How much is sent, step by step. `controller=NAME` chooses one.",
        "controllers",
    ),
    "profiles": ReferencePage(
        "Profiles",
        "What links do over time, as pure functions. `profile=NAME` chooses one.",
        "profiles",
    ),
    "gradnet": ReferencePage(
        "The library gradnet", "A method in one's own training script.", "gradnet"
    ),
    "protocols": ReferencePage(
        "Protocols of the harness",
        "What the parts of the harness ask of each other. A class needs no base to be one.",
        "harness",
        only_protocols=True,
    ),
}


class DocumentedField(NamedTuple):
    """A field of a class, with its type, default and comment as text."""

    name: str
    type: str
    default: str
    about: str


def write(folder: Path) -> None:
    """Write all pages to `folder`; a page whose text is unchanged is not touched."""
    out = OutputFolder(folder, instead="name another folder")
    texts = {name: classes_page(page) for name, page in PAGES.items()}
    for name, text in (texts | {"settings": settings_page()}).items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            out.write(path.name, text)


def classes_page(page: ReferencePage) -> str:
    """Return Markdown of all public classes and functions of a page, by module."""
    parts = [f"# {page.title}", page.about]
    paths = (ROOT / page.folder).rglob("*.py")
    for path in sorted(paths, key=lambda each: (each.parent, each.stem != "base", each)):
        source = SourceText(path)
        found = list(source.told(page.only_protocols))
        if found:
            parts += [f"## {source.module}", *source.about(), *found]
    return "\n\n".join(parts) + "\n"


class SourceText:
    """Parsed source of one module."""

    def __init__(self, path: Path) -> None:
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.module = ".".join(parts).removesuffix(".__init__")
        self._text = path.read_text()
        self._tree = ast.parse(self._text)
        with path.open("rb") as file:
            tokens = [each for each in tokenize.tokenize(file.readline)]
        self._comments = {each.start[0]: each for each in tokens if each.type == tokenize.COMMENT}

    def about(self) -> list[str]:
        """Return the module's docstring as a list of at most one paragraph."""
        return _prose(ast.get_docstring(self._tree))

    def classes(self) -> list[ast.ClassDef]:
        """Return the public classes of the module."""
        found = [each for each in self._tree.body if isinstance(each, ast.ClassDef)]
        return [each for each in found if not each.name.startswith("_")]

    def told(self, only_protocols: bool) -> Iterator[str]:
        """Yield Markdown for each public class, and for each public function of gradnet."""
        for node in self.classes():
            if not only_protocols or "Protocol" in _bases(node):
                yield self._class(node)
        for each in self._tree.body:
            if isinstance(each, ast.FunctionDef) and self.module.startswith("gradnet."):
                if not each.name.startswith("_"):
                    yield _directive("function", f"{self.module}.{_signature(each)}", each)

    def _class(self, node: ast.ClassDef) -> str:
        """Return Markdown of a class: docstring, bases, choices, fields and methods."""
        parts = [*_prose(ast.get_docstring(node))]
        if bases := [each for each in _bases(node) if each not in ("Protocol", *OF_AN_ERROR)]:
            parts.append("It is a " + ", ".join(f"`{each}`" for each in bases) + ".")
        found = _choices_of().get(f"{self.module}.{node.name}", [])
        parts += ["Chosen by " + ", ".join(f"`{each}`" for each in found) + "."] if found else []
        parts += _table(
            ("field", "type", "default", "what it is"),
            (
                (f"`{name}`", _code(kind), _code(default), about or _inherited(node, name))
                for name, kind, default, about in self.fields(node)
            ),
        )
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
                is_property = any("property" in ast.unparse(d) for d in each.decorator_list)
                kind, said = (
                    ("property", each.name) if is_property else ("method", _signature(each))
                )
                parts.append(_directive(kind, said, each))
        return _fenced("class", f"{self.module}.{node.name}", parts)

    def fields(self, node: ast.ClassDef) -> Iterator[DocumentedField]:
        """Yield the public fields of a class in order, without those that have init=False."""
        lines = [each for each in node.body if isinstance(each, (ast.AnnAssign, ast.Assign))]
        for number, line in enumerate(lines):
            target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
            name, value = ast.unparse(target), ast.unparse(line.value) if line.value else ""
            if name.startswith("_") or "init=False" in value:
                continue
            annotation = line.annotation if isinstance(line, ast.AnnAssign) else None
            kind, declared = _type(annotation)
            later = lines[number + 1] if number + 1 < len(lines) else None
            about = declared or _escaped(self._comment(line, later))
            made = re.fullmatch(r"field\(default_factory=(\w+)\)", value)
            yield DocumentedField(name, kind, f"{made[1]}()" if made else value, about)

    def _comment(self, line: ast.stmt, later: ast.stmt | None) -> str:
        """Return the comment beside a field and the lines below it, or else the lines above it."""
        at, end = line.lineno, line.end_lineno or line.lineno
        beside = [self._comments[each] for each in range(at, end + 1) if each in self._comments]
        above = self._alone(range(at - 1, 0, -1))[::-1] if not beside else []
        below = self._alone(range(end + 1, end + 9))
        if later and (later.end_lineno or 0) not in self._comments:
            below = []  # these belong to the next field
        texts = [each.string.lstrip("# ") for each in above + beside + below]
        return " ".join(each for each in texts if not each.startswith(("fmt:", "type:", "noqa")))

    def _alone(self, numbers: Iterable[int]) -> list[tokenize.TokenInfo]:
        """Return comments on lines of their own, up to the first line without one."""
        found = []
        for number in numbers:
            token = self._comments.get(number)
            if token is None or token.line.strip() != token.string:
                break
            found.append(token)
        return found


def settings_page() -> str:
    """Return Markdown of all groups, choices, keys and constraints."""
    parts = ["# Settings", "What `python -m harness --help` says, on one page.", "## Groups"]
    parts += _table(
        ("group", "default", "what it is"),
        ((f"`{each.name}`", _code(each.value), _escaped(each.about)) for each in help.of_groups()),
    )
    parts += ["## Keys", *_entries(help.of_keys())]
    for name, entries in help.of_sections().items():
        parts += [f"### {name}", *_entries(entries)]
    parts.append("## Choices")
    for group in _all_groups():
        rows = ((f"`{each.name}`", _escaped(each.about)) for each in help.of_choices(group))
        parts += [f"### {group}=", *_table(("choice", "what it is"), rows)]
    table = "\n".join(constraints.reference())
    parts += ["## What does not go together", f"```text\n{table}\n```"]
    return "\n\n".join(parts) + "\n"


def _all_groups() -> Iterator[str]:
    for group in groups():
        if choices(group):
            yield group
        yield from (inner for inner in groups(group) if choices(inner))


def _entries(entries: Iterable[help.HelpEntry]) -> list[str]:
    rows = ((f"`{each.name}`", _code(each.value), _escaped(each.about)) for each in entries)
    return _table(("key", "default", "what it is"), rows)


def _inherited(node: ast.ClassDef, name: str) -> str:
    """Return the description of a field in a base class of our packages; "" if there is none."""
    for base in _bases(node):
        if told := _fields_of_bases().get(base, {}).get(name):
            return told
    return ""


@cache
def _fields_of_bases() -> dict[str, dict[str, str]]:
    """Return the descriptions of fields by class, for all classes in a base.py."""
    found = {}
    for folder in ("compressors", "controllers", "profiles"):
        source = SourceText(ROOT / folder / "base.py")
        for node in source.classes():
            found[node.name] = {each.name: each.about for each in source.fields(node)}
    return found


@cache
def _choices_of() -> dict[str, list[str]]:
    """Return the choices of all groups by the class that they build."""
    found = defaultdict(list)
    for file in (each for folder in folders() for each in sorted(folder.rglob("*.yaml"))):
        if built := TARGET.search(file.read_text()):
            found[built[1]].append(f"{file.parent.name}={file.stem}")
    return dict(found)


def _bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(each) for each in node.bases if ast.unparse(each) != "NamedTuple"]


def _type(annotation: ast.expr | None) -> tuple[str, str]:
    """Return a field's type, and the text of its Annotated restriction."""
    if annotation is None:
        return "", ""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        kind, *more = annotation.slice.elts
        words = [each.args[0] for each in more if isinstance(each, ast.Call) and each.args]
        said = [each.value for each in words if isinstance(each, ast.Constant)]
        return ast.unparse(kind), _escaped("; ".join(map(str, said)))
    return ast.unparse(annotation), ""


def _signature(node: ast.FunctionDef) -> str:
    """Return a function's name, arguments without `self`, and return type."""
    arguments = re.sub(r"^(self|cls)(, |$)", "", ast.unparse(node.args))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){returns}"


def _directive(kind: str, said: str, node: ast.FunctionDef) -> str:
    option = (
        "" if kind == "function" else "\n:no-contents-entry:"
    )  # options follow on the next line
    return _fenced(kind, said + option, _prose(ast.get_docstring(node)))


def _fenced(kind: str, said: str, parts: list[str]) -> str:
    """Return a Sphinx directive that indexes an object, with `parts` as its content."""
    fence = "::::" if kind == "class" else ":::"
    return "\n\n".join([f"{fence}{{py:{kind}}} {said}", *parts, fence])


def _prose(text: str | None) -> list[str]:
    """Return a docstring as Markdown, in a list; [] if there is none."""
    return [text.replace("<", "\\<")] if text else []


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _escaped(text: str) -> str:
    """Escape a comment for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table in a list; [] if it would have no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return ["\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines])] * bool(lines)
