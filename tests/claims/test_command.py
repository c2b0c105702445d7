"""`python -m harness study claims`, on runs by hand."""

import re

import pytest

from harness.config.parts import presets
from harness.reporting.claims import papers
from papers.dc2 import claims as dc2
from tests import records_by_hand as by_hand
from tests.door import door


def call(monkeypatch, *arguments: object) -> int:
    return door("study", "claims", *arguments)


@pytest.fixture
def folder(tmp_path):
    for method, step_s in {"allreduce": 1.0, "topk_0.001": 0.1, "dc2_da2": 0.2}.items():
        rows = [
            by_hand.step(n, time_s=step_s * (n + 1), density=0.2, loss=2 - step_s * n / 10)
            for n in range(10)
        ]
        end = by_hand.Evaluation(10, step_s * 10, "accuracy", 0.9)
        for seed in range(3):
            told = {"experiment": dc2.VGG16, "error_feedback": False, "workers": 8}
            if method == "topk_0.001":
                told["compressor"] = presets()["dc2_da2"]["compressor"]
            config = by_hand.config(method, seed, **told)
            by_hand.run(tmp_path / "runs" / f"{method}-{seed}", config, rows, [end])
    return tmp_path


def test_it_prints_verdicts_and_published_numbers(folder, monkeypatch, capsys):
    assert call(monkeypatch, folder, "--paper", "dc2") == 0
    lines = capsys.readouterr().out.splitlines()
    twice = [line for line in lines if line.lstrip().startswith("dc2_fig4e")]
    assert any("holds" in line for line in twice)
    (side,) = (line for line in lines if "throughput_ratio_approx" in line)
    assert re.search(r" 2 +2 +x ", side)
    told = next(line for line in lines if line.startswith("Of papers' claims"))
    assert "1 holds over packets" in told
    text = " ".join(lines)
    absent = text.split("not shown", 1)[1]
    assert "dc2_fig5a" in absent and "dc2_table2" in absent
    assert not any("netsense" in line for line in lines)


def test_a_folder_without_runs_ends_with_2(tmp_path, monkeypatch, capsys):
    assert call(monkeypatch, tmp_path) == 2
    assert "no runs in" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [(), ("--paper", "local_steps"), ("--paper", "controls")])
def test_a_study_that_no_run_belongs_to_is_one_line(asked, tmp_path, monkeypatch, capsys):
    rows = [by_hand.step(n, time_s=n + 1.0) for n in range(3)]
    by_hand.run(tmp_path / "runs" / "other", by_hand.config("allreduce", 0), rows, [])
    assert call(monkeypatch, tmp_path, *asked) == 0
    lines = capsys.readouterr().out.splitlines()
    studies = asked[1:] or [each.name for each in papers()]
    assert [line.split(":")[0] for line in lines] == list(studies)
    assert all(re.search(r"no run of \S+ belongs to one of its \d+ cl", line) for line in lines)
