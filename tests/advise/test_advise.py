"""`python -m harness.advise`: what it runs, what it answers, what it refuses before it starts."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from harness.advise.compositions import Contender, question
from harness.config.settings import BadSetting
from tests.launching import completed

TINY = ("workload=pace_digits", "model.hidden=[64]", "workers=2", "steps=60", "eval_every=5")
TINY += ("profile=static", "profile.rate_mbit=2", "target.value=0.3", "network=calibrated")


def advised(folder: Path, *more: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "harness.advise", *TINY, f"results={folder}", *more]
    done = completed(command, 300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long
def test_the_answer_of_a_race_with_its_regret_and_a_second_call_that_runs_nothing(tmp_path):
    """On a slow link, where dense is last: in a step it sends ten times as much as any other."""
    asked = ("method=topk", "--pairs", "2", "--exhaustive")
    status, out, err = advised(tmp_path, *asked)
    assert status == 0, out + err
    stages = [line[:2] for line in out.splitlines() if re.match(r"\d\. ", line)]
    assert stages == ["1.", "2.", "3.", "4."]
    assert "3. finalists over packets: skipped, as virtual time is what was asked for" in out
    answer = out.partition("\nadvice on mlp_static_0.3\n")[2].splitlines()
    assert re.match(r"(Undecided between \S+|\S+ is first: it reaches accuracy 0.3)", answer[0])
    assert any(re.match(r"allreduce\S* takes \d.* times as long", line) for line in answer)
    assert re.match(
        r"Regret of \S+: \d+\.\d% against \S+, the best of all \d+ by seeds 10 to 11\.", answer[-1]
    )
    folder = tmp_path / "advise/mlp_static_0.3"
    assert (folder / "report/index.html").exists()
    runs = sorted(folder.glob("*/status.json"))
    before = {file: file.stat().st_mtime_ns for file in runs}
    assert len(runs) >= 6 and {yaml.safe_load(file.read_text())["state"] for file in runs} == {
        "succeeded"
    }
    again = advised(tmp_path, *asked)
    assert again[1].partition("advice on")[2] == out.partition("advice on")[2]
    assert before == {file: file.stat().st_mtime_ns for file in folder.glob("*/status.json")}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["target.value=null"], "target.value must be given: write target.value="),
        (["target.value=90"], r"target.value must be in \(0, 1\] for accuracy \(90 % is 0.9\)"),
        (["target.value=90%"],
         r"target.value must be a number in \[-1e20, 1e20\] or null, got '90%'; write 0.9"),
        (["compressor=topk"], "compressor is what is looked for; method=A,B names presets"),
        (["controller.density=0.1"], "controller.density is what is looked for"),
        (["seed=3"], "seed is of the race, which runs several seeds: write --pairs"),
        (["profile=static,markov"], "profile=static,markov: one question at a time"),
        (["method=topk,nosuch"],
         "method has no choice 'nosuch'; `python -m harness --help method` lists them"),
        (["profile=nosuch"], "profile has no choice 'nosuch'"),
        (["nosuch=1"], "nosuch=1: there is no key 'nosuch'"),
    ],
    ids=str,
)  # fmt: skip
def test_what_no_race_can_answer_is_refused_in_one_line(more, told):
    keys = {each.partition("=")[0] for each in more}
    asked = [each for each in TINY if each.partition("=")[0] not in keys]
    with pytest.raises(BadSetting, match=told) as refused:
        about = question([*asked, *more])
        about.check()
    assert "\n" not in str(refused.value)


def test_every_preset_takes_part_or_is_told_why_not():
    about = question(TINY)
    found = about.compositions()
    kinds = {name: isinstance(each, Contender) for name, each in found.items()}
    labels = {name.split("_bucket_mb")[0]: fits for name, fits in kinds.items()}
    for name in ("topk_0.1", "topk_0.01", "topk_0.001", "qsgd", "hide", "pace", "powersgd"):
        assert labels[name], name
    assert found["oracle"] == "it knows the profile, which no method can"
    assert found["dgc"] == "it needs another optimizer"
    for preset in about.methods:
        told = (name for name in labels if name.startswith(preset) or preset == "allreduce")
        assert any(told), preset


def test_runs_end_at_the_target_and_over_packets_they_are_the_same():
    asked = [each for each in TINY if not each.startswith("network=")]
    about = question([*asked, "results=here"])
    virtual = about.dense().settings
    assert virtual["target.ends_run"] and virtual["results"] == "here/advise"
    assert virtual.build("network").in_process and virtual["emulation.compute"] == "paced"
    if about.packets is not None:
        packets = about.settings(("method=topk",), 3, over_packets=True)
        assert not packets.build("network").in_process and packets["seed"] == 3
    none = about.without_packets("no reason")
    assert none.packets is None and none.why_not == "no reason"
