"""Run directories that were damaged, or come from elsewhere: left out by name, the rest is told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.config import plain_yaml
from harness.records import manifest
from harness.reporting.analysis import load
from harness.reporting.analysis.comparison import compare
from harness.reporting.report import report
from tests import records_by_hand as by_hand
from tests.door import door

STEP_S = {"allreduce": 1.0, "topk_0.1": 0.5}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods of two seeds."""
    return by_hand.sweep(tmp_path_factory.mktemp("whole") / "by_hand", STEP_S)


@pytest.fixture
def folder(sweep: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sweep, tmp_path / "by_hand"))


def cut(data: bytes, at: float) -> bytes:
    return data[: int(at * len(data))]


def repeat(data: bytes, at: float) -> bytes:
    return data + data[int(at * len(data)) :]


def flip(data: bytes, at: float) -> bytes:
    place = min(len(data) - 1, int(at * len(data)))
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def drop_a_line(data: bytes, at: float) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[min(len(lines) - 1, int(at * len(lines)))]
    return b"".join(lines)


def garble(data: bytes, at: float) -> bytes:
    return b"\0: [garbage\xff" + cut(data, at)


CHANGES: list[Callable[[bytes, float], bytes]] = [cut, repeat, flip, drop_a_line, garble]
FILES = ["config.yaml", "status.json", "summary.json", "steps.csv", "evaluations.csv", "links.csv"]


@pytest.mark.parametrize(
    "examples", [40, pytest.param(1000, marks=[pytest.mark.faults, pytest.mark.timeout(3600)])]
)
def test_damage_anywhere_is_told_by_name_and_no_figure_counts_it(
    examples: int, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several files at once, removed, emptied, linked or made a folder too: the report lives."""
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    truth = {"allreduce": 10.0, "topk_0.1": 5.0}

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        hits=st.lists(
            st.tuples(
                st.sampled_from(sorted(whole)),
                st.sampled_from([*CHANGES, remove, empty, link, folder_instead]),
                st.floats(0, 1, exclude_max=True),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def law(hits: list[tuple[Path, Callable[[bytes, float], bytes | None], float]]) -> None:
        shutil.rmtree(folder)
        for path, data in whole.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for path, change, at in hits:
            hit(path, change, at)
        hurt = {path.parent.name for path, _, _ in hits if not same(path, whole[path])}
        try:
            found = load.runs(folder)
        except load.NoRuns:
            return
        counted = found[found.left_out == ""]
        assert set(found.run_id) - hurt <= set(counted.run_id)  # what is whole is counted
        if len(counted):
            table = compare(counted).table.set_index("method")
            assert all(truth[method] == time for method, time in table.time_s.items())

    law()


def remove(data: bytes, at: float) -> None:
    return None


def empty(data: bytes, at: float) -> bytes:
    return b""


def link(data: bytes, at: float) -> bytes:
    return b"link"


def folder_instead(data: bytes, at: float) -> bytes:
    return b"folder"


def hit(path: Path, change: Callable[[bytes, float], bytes | None], at: float) -> None:
    """Put what `change` says in the place of `path`."""
    if not path.is_file():  # hit before
        return
    data = change(path.read_bytes(), at) if path.stat().st_size else b"x"
    path.unlink()
    if change is link:
        path.symlink_to("/dev/zero" if at < 0.5 else path.parent)
    elif change is folder_instead:
        path.mkdir()
    elif data is not None:
        path.write_bytes(data)


def same(path: Path, data: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == data


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    change=st.sampled_from(CHANGES),
    name=st.sampled_from(FILES),
    at=st.floats(0, 1, exclude_max=True),
)
def test_damage_of_one_file_leaves_out_its_run_and_changes_no_other(sweep, change, name, at):
    file = sweep / "topk_0.1-1" / name
    whole = file.read_bytes()
    damaged = change(whole, at)
    try:
        file.write_bytes(damaged)
        found = load.runs(sweep).set_index("run_id")
        others = found.drop(index="topk_0.1-1")
        assert (others.left_out == "").all() and len(others) == 3
        told = found.loc["topk_0.1-1"]
        if name == "status.json":  # it may say the same in other words, or be of another state
            assert told.left_out or _same_end(whole, damaged)
        else:
            assert bool(told.damaged) == (damaged != whole)
            assert (told.left_out == "") == (damaged == whole)
        table = compare(found[found.left_out == ""].reset_index()).table.set_index("method")
        assert table.time_s.to_dict() == {"allreduce": 10.0, "topk_0.1": 5.0}
    finally:
        file.write_bytes(whole)


def _same_end(before: bytes, after: bytes) -> bool:
    """Whether both say that the run succeeded, with the same manifest."""
    first, second = json.loads(before), json.loads(after)
    return all(first[key] == second[key] for key in ("state", "files"))


def test_a_report_tells_the_rest_and_ends_with_1(folder, capsys, monkeypatch):
    by_hand.tear(folder / "allreduce-0" / "steps.csv")
    assert door("report", folder) == 1
    text = capsys.readouterr().out
    assert "steps.csv is damaged" in text and "allreduce-0" in text
    assert (folder / "report" / "index.html").exists()


@pytest.mark.parametrize(
    "names", [["../../evil", "/tmp/evil", ".."], [".hidden", "a\nb", 3], [None, []]]
)
def test_a_foreign_name_of_an_experiment_reaches_no_other_folder(folder, names):
    hit = ["allreduce-0", "allreduce-1", "topk_0.1-0"][: len(names)]
    for run, name in zip(hit, names, strict=True):
        told = by_hand.config(run.rpartition("-")[0], experiment=name)
        (folder / run / "config.yaml").write_text(json.dumps(told))
        by_hand.seal(folder / run)
    before = {path for path in folder.parent.parent.iterdir()}
    found = load.runs(folder).set_index("run_id").loc[hit]
    told = "config.yaml is damaged: experiment must name a folder, got"
    assert found.damaged.str.startswith(told).all()
    assert (found.experiment == "by_hand").all()
    report(folder)
    assert {path for path in folder.parent.parent.iterdir()} == before


def billions() -> str:
    """A mapping whose aliases stand for 10^12 strings."""
    lines = ["experiment: by_hand", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for depth in range(1, 12):
        lines.append(f"a{depth}: &a{depth} [{', '.join([f'*a{depth - 1}'] * 10)}]")
    return "\n".join([*lines, "profile: *a11", ""])


@pytest.mark.parametrize(
    "text",
    [
        billions(),
        "experiment: by_hand\nprofile: " + "{a: " * 200 + "1" + "}" * 200,
        "experiment: by_hand\nprofile: " + "[" * 100_000,
        "experiment: by_hand\nnote: " + "x" * plain_yaml.MOST_BYTES,
        "experiment: by_hand\nmodel: !!python/object/apply:os.system ['touch /tmp/evil']\n",
    ],
    ids=["aliases", "deep", "endless", "large", "python"],
)
def test_settings_that_would_never_end_are_left_out(folder: Path, text: str) -> None:
    (folder / "allreduce-0" / "config.yaml").write_text(text)
    by_hand.seal(folder / "allreduce-0")
    found = load.runs(folder).set_index("run_id").left_out
    assert found["allreduce-0"].startswith("config.yaml is damaged") and (found == "").sum() == 3


@pytest.mark.parametrize("changed, said", [
    ({"target": {"metric": "accuracy", "value": "abc"}}, "target.value must be a number"),
    ({"seed": "x"}, "seed must be a whole number, got 'x'"),
    ({"workers": True}, "workers must be a whole number, got True"),
    ({"emulation": {"dilation": []}}, "emulation.dilation must be a number, got []"),
    ({"steps": {"a": 1}}, "steps must be a whole number"),
])  # fmt: skip
def test_a_value_of_another_type_is_named(folder: Path, changed: dict, said: str) -> None:
    run = folder / "topk_0.1-0"
    (run / "config.yaml").write_text(json.dumps(by_hand.config("topk_0.1", **changed)))
    by_hand.seal(run)
    found = load.runs(folder).set_index("run_id").left_out
    assert found["topk_0.1-0"].startswith(f"config.yaml is damaged: {said}")


@pytest.mark.parametrize(
    "section", ["model", "dataset", "profile", "network", "emulation", "target"]
)
@pytest.mark.parametrize("value", [3, "x", [1], [{"a": [2]}], None, {"_target_": 3}, {"name": [1]}])
def test_a_section_of_any_form_is_read(folder: Path, section: str, value: object) -> None:
    run = folder / "topk_0.1-0"
    (run / "config.yaml").write_text(json.dumps(by_hand.config("topk_0.1", **{section: value})))
    by_hand.seal(run)
    found = load.runs(folder).set_index("run_id").damaged
    assert (found.drop("topk_0.1-0") == "").all()
    assert isinstance(value, dict) or f"{section} must be a section" in found["topk_0.1-0"]
    report(folder, agreement_alone=True)


@pytest.mark.parametrize("text, said", [
    ("step,rank\n0,0\n", "it has no column compress_s"),
    ("step,rank,time_s\nx,0,1\n", "invalid literal"),
    ("step\n" + "9" * 40 + "\n", ""),
    ('step,"\n', "EOF inside string"),
])  # fmt: skip
def test_a_table_of_another_form_is_left_out(folder: Path, text: str, said: str) -> None:
    run = folder / "topk_0.1-0"
    (run / "steps.csv").write_text(text)
    by_hand.seal(run)
    found = load.runs(folder).set_index("run_id").left_out["topk_0.1-0"]
    assert found.startswith("steps.csv is damaged: ") and said in found


def test_a_method_whose_name_is_mathematics_is_drawn_as_text(tmp_path: Path) -> None:
    evil = r"$\frac$"
    folder = by_hand.sweep(tmp_path / "by_hand", {"allreduce": 1.0, "x": 0.5}, seeds=1)
    config = folder / "x-0" / "config.yaml"
    config.write_text(json.dumps(by_hand.config(evil)))
    by_hand.seal(folder / "x-0")
    assert manifest.of(folder / "x-0")
    assert (report(folder) / "index.html").exists()
