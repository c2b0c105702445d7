"""Results that are kept with the project are of a whole study, one commit and listed runs."""

from dataclasses import replace

import pandas as pd
import pytest
import yaml

from harness.config.settings import BadSetting
from harness.reproduce import reference
from harness.reproduce.paper import Paper
from harness.reproduce.perform import perform

KEPT = sorted(path for path in reference.FOLDER.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_verdicts_and_numbers_rest_on_runs_that_are_kept(folder):
    kept = set(pd.read_csv(folder / "runs.csv").run_id)
    for name in ("claims", "published"):
        if (path := folder / f"{name}.csv").is_file():
            rows = pd.read_csv(path, keep_default_na=False)
            assert {run for runs in rows.runs for run in runs.split()} <= kept


def test_a_study_is_written_whole_and_of_one_commit(tmp_path, monkeypatch):
    told = {"title": "A paper", "claims": "", "experiments": ["quickstart", "pace_fluctuating"],
            "sweeps": [["network=calibrated", "method=allreduce", "seed=0"]],
            "figures": {"quickstart": ["quality_steps"]}}  # fmt: skip
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(told))
    paper = Paper.read(str(tmp_path / "own.yaml"))
    tiny = ["scale=laptop", "workers=2", "steps=4", "eval_every=2", f"results={tmp_path / 'runs'}"]
    tiny += ["profile=static", "model=convnet", "emulation.compute=measured"]
    runs = paper.described(tiny).runs
    assert {each.state for each in perform(runs, lambda *_: None)} == {"succeeded"}
    results, out = tmp_path / "runs", tmp_path / "own"
    whole = {path.name for path in reference.write(paper, results, tiny, tmp_path)}
    assert set(pd.read_csv(out / "runs.csv").experiment) == {"quickstart", "pace_fluctuating"}
    assert {each.split("-")[0] for each in whole if "quality_steps" in each} == {"quickstart"}
    assert "| quickstart | virtual | 1 |" in (out / "README.md").read_text()
    wrong = replace(paper, figures={"quickstart": ["quality_stairs"]})
    with pytest.raises(BadSetting, match="figures of quickstart .*quality_steps.*, got quality_st"):
        reference.write(wrong, results, tiny, tmp_path)
    with monkeypatch.context() as patched:  # a file that was edited would not count
        environments = iter([{"git": {"commit": each * 40}} for each in "ef"])
        patched.setattr(reference, "read_json", lambda path: next(environments))
        with pytest.raises(BadSetting, match=r"commit, got e{12} \(1 runs\), f{12} \(1 runs\)"):
            reference.write(paper, results, tiny, tmp_path)
    assert {path.name for path in out.iterdir()} == whole  # as before
    shorter = replace(paper, experiments=["quickstart"])
    reference.write(shorter, results, tiny, tmp_path)
    assert not list(out.glob("pace_fluctuating-*")) and list(out.glob("quickstart-*"))


def test_only_experiments_of_the_paper_may_be_asked_for():
    paper = Paper.read("netsense")
    assert paper.only([]) == paper
    chosen = paper.only(["netsense_table1", "netsense_resnet18_contended"]).experiments
    assert chosen == [name for name in paper.experiments if name in chosen] and len(chosen) == 2
    with pytest.raises(BadSetting, match="experiments of .*netsense_table1.*, got dc2_table2"):
        paper.only(["dc2_table2"])
