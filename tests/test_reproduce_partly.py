"""Experiments of a paper run again: what is kept of the others, and what takes whose place."""

from dataclasses import replace

import pandas as pd
import pytest
import yaml

from harness.config.settings import BadSetting
from harness.reproduce import reference
from harness.reproduce.paper import Paper
from harness.reproduce.partly import BY_RUNS, anew, merged, parts_of, read
from harness.reproduce.perform import perform

KEPT = reference.FOLDER
PAPERS = sorted(path.name for path in KEPT.iterdir() if path.is_dir())


def of(tables: dict[str, pd.DataFrame], experiment: str) -> dict[str, pd.DataFrame]:
    """What a paper of that experiment alone would say: no claim that needs runs of another."""
    own = set(tables["runs"][tables["runs"].experiment == experiment].run_id)
    found = {}
    for name, rows in tables.items():
        if name not in BY_RUNS:
            found[name] = rows[rows.experiment == experiment]
            continue
        told = rows.runs.map(lambda runs: set(runs.split()) <= own)
        found[name] = rows.assign(runs=rows.runs.where(told, ""))
    return found


def alike(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    columns = sorted(one)
    places = [each[columns].sort_values(columns).to_numpy().tolist() for each in (one, other)]
    return sorted(other) == columns and places[0] == places[1]


def test_kept_tables_have_todays_names_whenever_they_were_written(tmp_path):
    text = (KEPT / PAPERS[0] / "runs.csv").read_text()
    older = text.replace("compute_before_first_bucket_s", "before_s", 1)
    (tmp_path / "runs.csv").write_text(older)
    pd.testing.assert_frame_equal(read(tmp_path)["runs"], read(KEPT / PAPERS[0])["runs"])
    assert older != text


@pytest.mark.parametrize("name", PAPERS)
def test_what_is_told_again_without_a_change_changes_nothing(name):
    before = read(KEPT / name)
    told = {each: about for each, about in BY_RUNS.items() if each in before}
    assert not any(before[each].duplicated(about).any() for each, about in told.items())
    for experiment in before["runs"].experiment.unique():
        found = merged(before, of(before, experiment), [experiment])
        assert set(found) == set(before)
        assert all(alike(found[each], before[each]) for each in before)


@pytest.mark.parametrize("name", PAPERS)
def test_what_is_told_rests_on_runs_that_are_kept(name):
    tables = read(KEPT / name)
    kept = set(tables["runs"].run_id)
    for each in BY_RUNS.keys() & tables.keys():
        assert {run for runs in tables[each].runs for run in runs.split()} <= kept


def table(**columns: str) -> pd.DataFrame:
    """Of virtual time, unless `columns` say a world of each row."""
    told = pd.DataFrame({name: values.split(",") for name, values in columns.items()})
    return told if "world" in told else told.assign(world="virtual")


def claims(texts: str, verdicts: str, runs: str) -> pd.DataFrame:
    same = ",".join("x" for _ in texts.split(","))
    return table(id=same, text=texts, verdict=verdicts, runs=runs, network=same, scale=same)


def test_rows_of_runs_that_are_replaced_are_replaced():
    before = {
        "runs": table(experiment="a,b,b", model="m,m,m", run_id="a1,b1,b2"),
        "claims": claims("one,two,both,none", "holds,holds,holds,not testable", "a1,b1 b2,a1 b1,"),
        "left_out": table(experiment="b", run_id="b3"),
    }
    fresh = {
        "runs": table(experiment="b", model="m", run_id="b4"),
        "claims": claims(
            "one,two,both,none,new,nothing",
            "not testable,does not hold,not testable,holds,holds,not testable",
            ",b4,,b4,b4,",
        ),
        "proof": table(experiment="b", run_id="b4"),
    }
    found = merged(before, fresh, ["b"])
    assert found["runs"].run_id.to_list() == ["a1", "b4"]
    told = dict(found["claims"].set_index("text").verdict)
    assert told == {
        "one": "holds", "two": "does not hold", "both": "holds", "none": "holds", "new": "holds"
    }  # fmt: skip
    assert found["left_out"].empty
    assert found["proof"].run_id.to_list() == ["b4"]


def test_what_was_told_by_runs_that_are_gone_is_not_told_any_more():
    before = {
        "runs": table(experiment="b", model="m", run_id="b1"),
        "claims": claims("one,older,no claim any more", "holds,holds,holds", "b1,b0 b1,b1"),
    }
    fresh = {
        "runs": table(experiment="b", model="m", run_id="b2"),
        "claims": claims("one,older", "not testable,not testable", ","),
    }
    told = merged(before, fresh, ["b"])["claims"]
    assert told.text.to_list() == ["one", "older"]
    assert told.verdict.to_list() == ["not testable", "not testable"]


def test_a_column_that_older_tables_lack_comes_with_the_rows_that_have_it():
    before = {
        "runs": table(experiment="a,b", model="m,m", run_id="a1,b1"),
        "claims": claims("of a,of b", "holds,holds", "a1,b1"),
    }
    fresh = {
        "runs": table(experiment="b", model="m", run_id="b2"),
        "claims": claims("of a,of b", "undecided,undecided", ",b2").assign(p="0.25"),
    }
    fresh["claims"]["ours"] = "False"  # which is declared, not measured
    told = merged(before, fresh, ["b"])["claims"]
    found = told[["text", "ours", "p"]].to_numpy().tolist()
    assert found == [["of a", "False", ""], ["of b", "False", "0.25"]]


def test_what_no_run_is_behind_is_told_as_it_is_now():
    before = {
        "runs": table(experiment="a,b", model="m,m", run_id="a1,b1"),
        "claims": claims(
            "older verdict,no claim any more,of b", "not testable,holds,holds", ",,b1"
        ),
    }
    over_packets = claims("over packets", "not testable", "").assign(network="packets")
    before["claims"] = pd.concat([before["claims"], over_packets], ignore_index=True)
    fresh = {
        "runs": table(experiment="b", model="m", run_id="b2"),
        "claims": claims("older verdict,of b", "not decidable here,holds", ",b2"),
    }
    told = merged(before, fresh, ["b"])["claims"]
    assert dict(told.set_index("text").verdict) == {
        "older verdict": "not decidable here", "of b": "holds", "over packets": "not testable"
    }  # fmt: skip


def test_rows_of_a_model_stay_that_no_run_is_of():
    before = {
        "comparison": table(experiment="b,b", model="m,n", final="1,2"),
        "runs": table(experiment="b,b", model="m,n", run_id="b1,b2"),
        "claims": claims("of m,of n,of both", "holds,holds,holds", "b1,b2,b1 b2"),
        "proof": table(experiment="b,b", run_id="b1,b2"),
    }
    fresh = {
        "comparison": table(experiment="b", model="m", final="3"),
        "runs": table(experiment="b", model="m", run_id="b3"),
        "claims": claims("of m,of n,of both", "undecided,not testable,not testable", "b3,,"),
        "proof": table(experiment="b", run_id="b3"),
    }
    found = merged(before, fresh, ["b"])
    assert dict(found["comparison"].set_index("model").final) == {"m": "3", "n": "2"}
    assert {*found["runs"].run_id} == {*found["proof"].run_id} == {"b2", "b3"}
    told = dict(found["claims"].set_index("text").verdict)
    assert told == {"of m": "undecided", "of n": "holds", "of both": "holds"}
    assert reference._again(before["runs"], {("b", "m", "virtual")}) == ["b (m)"]
    assert reference._again(before["runs"], set(parts_of(before["runs"]))) == ["b"]


def test_rows_of_virtual_time_stay_where_packets_alone_are_told_anew():
    before = {
        "runs": table(experiment="b,b,b", model="m,m,m", run_id="v1,v2,p1",
                      world="virtual,virtual,packets"),
        "comparison": table(experiment="b,b", model="m,m", final="1,2", world="virtual,packets"),
        "claims": claims("one,other", "holds,holds", "v1 v2,p1"),
        "proof": table(experiment="b", run_id="p1", world="packets"),
        "agreement": table(experiment="b", error="0.1", world="-"),
    }  # fmt: skip
    fresh = {  # with a twin in virtual time, which was run before
        "runs": table(experiment="b,b", model="m,m", run_id="v1,p2", world="virtual,packets"),
        "comparison": table(experiment="b,b", model="m,m", final="3,4", world="virtual,packets"),
        "claims": claims("one,other", "undecided,undecided", "v1,p2"),
        "proof": table(experiment="b", run_id="p2", world="packets"),
        "agreement": table(experiment="b", error="0.2", world="-"),
    }
    found = merged(before, fresh, ["b"])
    assert sorted(found["runs"].run_id) == ["p2", "v1", "v2"]
    assert dict(found["comparison"].set_index("world").final) == {"virtual": "1", "packets": "4"}
    assert dict(found["claims"].set_index("text").verdict) == {"one": "holds", "other": "undecided"}
    assert found["proof"].run_id.to_list() == ["p2"]
    assert found["agreement"].error.to_list() == ["0.2"]
    ran = anew(before["runs"], fresh["runs"])
    assert reference._again(before["runs"], ran) == ["b (m packets)"]
    more = table(experiment="b,b", model="m,m", run_id="v1,v3")  # one that was not there
    assert anew(before["runs"], more) == {("b", "m", "virtual")}


def test_what_the_paper_has_no_more_is_not_kept():
    before = {
        "runs": table(experiment="a,b,c", model="m,n,m", run_id="a1,b1,c1"),
        "comparison": table(experiment="a,b,c", model="m,n,m", final="1,2,3"),
        "claims": claims("of a,of b,of c", "holds,holds,holds", "a1,b1,c1"),
        "proof": table(experiment="a,b,c", run_id="a1,b1,c1"),
    }
    fresh = {
        "runs": table(experiment="b", model="m", run_id="b2"),
        "comparison": table(experiment="b", model="m", final="4"),
        "claims": claims("of a,of b", "not testable,does not hold", ",b2"),
        "proof": table(experiment="b", run_id="b2"),
    }
    found = merged(before, fresh, ["b"], {("b", "n", "virtual"), ("c", "m", "virtual")})
    for each in ("runs", "comparison", "proof"):
        assert found[each].experiment.to_list() == ["a", "b"]
    assert dict(found["comparison"].set_index("experiment").final) == {"a": "1", "b": "4"}
    assert dict(found["claims"].set_index("text").verdict) == {
        "of a": "holds", "of b": "does not hold"
    }  # fmt: skip


def test_a_part_is_written_beside_what_is_kept(tmp_path):
    told = {
        "title": "A paper",
        "claims": "",
        "experiments": ["quickstart", "pace_fluctuating"],
        "sweeps": [["network=calibrated", "method=allreduce", "seed=0"]],
        "figures": {"quickstart": ["quality_steps"]},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(told))
    paper = Paper.read(str(tmp_path / "own.yaml"))
    tiny = ["scale=laptop", "workers=2", "steps=4", "eval_every=2", f"results={tmp_path / 'runs'}"]
    tiny += ["profile=static", "model=convnet", "emulation.compute=measured"]
    runs = paper.described(tiny).runs
    assert {each.state for each in perform(runs, lambda *_: None)} == {"succeeded"}
    results, out = tmp_path / "runs", tmp_path / "own"
    whole = {path.name for path in reference.write(paper, results, tiny, folder=tmp_path)}
    before, text = read(out), (out / "README.md").read_text()
    assert set(before["runs"].experiment) == {"quickstart", "pace_fluctuating"}
    assert {each.split("-")[0] for each in whole if "quality_steps" in each} == {"quickstart"}
    part = paper.only(["quickstart"])
    assert {path.name for path in reference.write(part, results, tiny, paper, tmp_path)} == whole
    after = read(out)
    assert all(alike(after[name], before[name]) for name in before)
    again = (out / "README.md").read_text()
    assert "--only quickstart" in again and "all but quickstart" in again
    assert all(line in again for line in text.splitlines() if line.startswith(("- ", "|")))
    shorter = replace(paper, experiments=["quickstart"])  # it has the other no more
    wrong = replace(part, figures={"quickstart": ["quality_stairs"]})
    with pytest.raises(BadSetting, match="figures of quickstart .*quality_steps.*, got quality_st"):
        reference.write(wrong, results, tiny, shorter, tmp_path)
    reference.write(part, results, tiny, shorter, tmp_path)
    assert set(read(out)["runs"].experiment) == {"quickstart"}
    assert not list(out.glob("pace_fluctuating-*")) and list(out.glob("quickstart-*"))


def test_only_experiments_of_the_paper_may_be_asked_for(tmp_path):
    paper = Paper.read("netsense")
    assert paper.only([]) == paper
    chosen = paper.only(["netsense_table1", "netsense_resnet18_contended"]).experiments
    assert chosen == [name for name in paper.experiments if name in chosen] and len(chosen) == 2
    with pytest.raises(BadSetting, match="experiments of .*netsense_table1.*, got dc2_table2"):
        paper.only(["dc2_table2"])
