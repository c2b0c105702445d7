"""Findings on the data sets of conf/dataset: whether their files exist."""

from collections.abc import Iterator, Sequence

from harness.config.scales import compose
from harness.config.search_path import choices
from harness.config.settings import BadSetting
from harness.doctor.composition import Composition
from harness.doctor.findings import Finding
from harness.workloads.data.base import DataSet, data_folder


def data_sets(asked: Sequence[Composition]) -> Iterator[Finding]:
    """Return findings on the data sets in use, as configured, then on all other choices."""
    seen: list[DataSet] = []
    for run, _ in asked:
        if run.dataset not in seen:
            seen.append(run.dataset)
            yield _data_set(run.dataset.name, run.dataset, not run.emulation.is_replay)
    for choice in choices("dataset"):
        [settings] = compose([f"dataset={choice}", "scale=paper"])
        try:
            data = settings.run().dataset
        except BadSetting as error:
            yield Finding(choice, "warn", str(error))
            continue
        if data not in seen:
            yield _data_set(choice, data, asked=False)


def _data_set(name: str, data: DataSet, asked: bool) -> Finding:
    folder = getattr(data, "folder", "")
    try:
        data.check()
    except FileNotFoundError as error:
        if asked:
            found, enable = str(error).split(". ", 1)
            return Finding(name, "missing", found, enable=enable)
        enable = f"`python -m harness.doctor dataset={name}` says how"
        return Finding(name, "warn", f"not in {data_folder(folder)}", enable=enable)
    where = f"in {data_folder(folder)}" if folder != "" else "comes with the installation"
    return Finding(name, "ok", where)
