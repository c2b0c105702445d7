"""The data sets of conf/dataset: whether their files are there."""

from collections.abc import Iterator, Sequence

from harness.data.base import data_folder
from harness.doctor.composition import CONF, Composition, compose
from harness.doctor.findings import Finding, needed
from harness.settings import BadSetting, Settings


def data_sets(asked: Sequence[Composition]) -> Iterator[Finding]:
    """Those asked for as they are configured, then the other choices as they come."""
    seen: list[object] = []
    for run in asked:
        section = run.settings["dataset"]
        if section not in seen:
            seen.append(section)
            reads = run.settings["emulation.compute"] != "replay"
            yield _data_set(str(run.parts["dataset"].name), run.settings, reads)
    for choice in sorted(path.stem for path in (CONF / "dataset").glob("*.yaml")):
        [settings] = compose([f"dataset={choice}"])
        if settings["dataset"] not in seen:
            yield _data_set(choice, settings, asked=False)


def _data_set(name: str, settings: Settings, asked: bool) -> Finding:
    folder = settings["dataset"].get("folder", "")
    try:
        settings.build("dataset").check()
    except FileNotFoundError as error:
        if asked:
            found, enable = str(error).split(". ", 1)
            return Finding(name, "missing", found, enable=enable)
        enable = f"`python -m harness.doctor dataset={name}` says how"
        return Finding(name, "warn", f"not in {data_folder(folder)}", enable=enable)
    except BadSetting as error:
        return Finding(name, needed(asked), str(error))
    where = f"in {data_folder(folder)}" if folder != "" else "comes with the installation"
    return Finding(name, "ok", where)
