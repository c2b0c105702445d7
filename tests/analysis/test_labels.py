"""Readable labels of methods, and style files, which have the last word."""

import csv
import re
from pathlib import Path

import pytest

from harness.config.settings import BadSetting
from harness.reporting.figures import style_file
from harness.reporting.figures.style_file import ReportStyle
from harness.reporting.labels import labels_of
from harness.reporting.report import report
from tests import records_by_hand as by_hand

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
KEYS = "rank lifespan whole h fragments vectors_apart reuse shared selection horizons d_min start "
KEYS += "outer_lr ascend_steps init sharding fresh bdp_gain"


def told(*names: str) -> list[str]:
    config = {"compressor": dict.fromkeys(KEYS.split()), "controller": {"h_max": 0}}
    return list(labels_of(dict.fromkeys(names, config)).values())


def test_a_label_has_words_for_keys_and_leaves_out_what_all_of_a_kind_share() -> None:
    assert told("allreduce", "topk_0.01", "topk_0.1_no_ef") == [
        "all-reduce", "top-k 1 %", "top-k 10 %, no error feedback",
    ]  # fmt: skip
    dct = [f"dct_dp_{density}_lifespan=1_whole=embedding.weight" for density in (0.05, 0.1)]
    assert told(*dct) == ["DCT-DP 5 %", "DCT-DP 10 %"]
    [said] = told(dct[0] + "+dct_mp_0.05")
    assert said == "DCT-DP 5 %, lifespan 1, whole embedding.weight + DCT-MP 5 %"
    assert told("powersgd_bucket_mb=25_rank=4") == ["PowerSGD, bucket 25 MB, rank 4"]


@pytest.mark.parametrize("name", ["mine", "powersgd_of_mine", "a=b", "topk_0.1+", ""])
def test_a_name_of_other_things_is_its_own_label(name: str) -> None:
    assert told(name) == [name]


def test_no_two_methods_of_a_reference_have_one_label_and_none_lists_keys() -> None:
    for file in REFERENCE.glob("*/comparison.csv"):
        experiments: dict[str, set[str]] = {}
        for row in csv.DictReader(file.open()):
            experiments.setdefault(row["experiment"], set()).add(row["method"])
        for names in experiments.values():
            labels = told(*sorted(names))
            assert len(set(labels)) == len(names)
            assert not [said for said in labels if "=" in said.replace("H = ", "")]


def test_a_style_file_decides_names_colours_width_and_title(tmp_path: Path) -> None:
    file = tmp_path / "style.yaml"
    file.write_text(
        "names: {topk_0.1: Ours}\ncolours: {topk_0.1: '#123456'}\n"
        "order: [topk_0.1, allreduce]\nwidth: 3.5\ntitle: off\n"
    )
    folder = by_hand.sweep(tmp_path / "by_hand", {"allreduce": 1.0, "topk_0.1": 0.5}, seeds=1)
    out = report(folder, style=style_file.read(file))
    curves = (out / "quality_curves.svg").read_text()
    assert "#123456" in curves and curves.index(">Ours<") < curves.index(">all-reduce<")
    assert 'width="252pt"' in curves and "2 workers" not in curves  # 3.5 inches
    assert "topk_0.1" not in (out / "time_to_target.svg").read_text()
    assert "Ours is first: it reaches accuracy 0.8" in (out / "index.html").read_text()
    assert "topk_0.1" in (out / "comparison.csv").read_text()


@pytest.mark.parametrize(("text", "said"), [
    ("colors: {}", "keys must be of names, colours, order, width, title, got 'colors'"),
    ("colours: {topk: reddish}", "colours.topk must be a colour such as"),
    ("width: 99", "width must be in [2, 20] inches, got 99"),
    ("title: maybe", "title must be on or off, got 'maybe'"),
    ("order: topk", "order must be names of methods"),
    ("names: [topk]", "names must be texts by the names of methods"),
    ("{", "must be YAML"),
])  # fmt: skip
def test_a_style_file_that_cannot_be_followed_is_refused_in_a_line(text, said, tmp_path):
    (tmp_path / "style.yaml").write_text(text)
    with pytest.raises(BadSetting, match=re.escape(said)) as refused:
        style_file.read(tmp_path / "style.yaml")
    assert "\n" not in str(refused.value)
    with pytest.raises(BadSetting, match="No such file"):
        style_file.read(tmp_path / "none.yaml")


def test_an_empty_style_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "style.yaml").write_text("")
    assert style_file.read(tmp_path / "style.yaml") == ReportStyle()
