"""The quickstart: an answer always, and a proof whose failure costs nothing but its own lines."""

from math import nan

import pandas as pd
import pytest

from harness.cli import quickstart
from harness.config.settings import Settings
from tests.door import door
from tests.test_settings import settings


@pytest.mark.launch
@pytest.mark.long
def test_the_answer_stands_when_the_proof_fails(tmp_path, monkeypatch, capsys):
    """As on a full disk; the figure and the page are there, and the exit status is 0."""
    monkeypatch.setattr(quickstart, "METHODS", "allreduce,powersgd")
    monkeypatch.setattr(quickstart, "RATES_MBIT", [8, 32])
    perform = quickstart.performed

    def fails(name: str, asked: list[Settings]) -> pd.DataFrame:
        if name == "proof":
            raise OSError("No space left on device")
        return perform(name, asked)

    monkeypatch.setattr(quickstart, "performed", fails)
    assert door("quickstart", f"results={tmp_path}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "accuracy 0.75, 4 workers, links of 32 Mbit/s" in "\n".join(lines)
    assert lines[-1] == "proof: failed: No space left on device"
    assert (tmp_path / "quickstart/report/rates.svg").is_file()
    assert (tmp_path / "quickstart/report/index.html").is_file()


def runs(**columns: object) -> pd.DataFrame:
    names = {"metric": "accuracy", "target": 0.75, "workers": 4, "steps": 120, "seed": 0}
    return pd.DataFrame([names | columns])


def test_the_answer_says_who_is_first_and_who_never_arrives(monkeypatch):
    finals = pd.DataFrame({"method": ["topk"], "final": [0.5]})
    monkeypatch.setattr(quickstart.metrics, "table", lambda runs: finals)
    rates = [16.0, 32.0, 64.0]
    times = {
        "all-reduce": pd.DataFrame({"mean_s": [40.0, 20.0, 3.0]}, index=rates),
        "powersgd": pd.DataFrame({"mean_s": [10.0, 5.0, 4.0]}, index=rates),
        "topk": pd.DataFrame({"mean_s": [nan] * 3}, index=rates),
    }
    one = runs(name="allreduce", method="all-reduce")
    lines = quickstart.answer_lines(one, times)
    assert "powersgd" in lines[1] and "4.0 x the first" in lines[2]
    assert "topk" in lines[3] and "not within 120 steps (ends at 0.50)" in lines[3]
    assert lines[4] == "first by rate (Mbit/s): powersgd from 16 to 32, all-reduce from 64 to 64"
    assert lines[5] == "all-reduce takes, against the first: 4.0 x at 16, 1.0 x at 64"
    never = {name: table * nan for name, table in times.items()}
    assert quickstart.answer_lines(one, never)[-1] == "no method reaches it at any rate"
    del times["topk"], times["powersgd"]
    times["all-reduce"].loc[16.0] = nan
    assert quickstart.answer_lines(one, times)[-1].endswith(": 1.0 x at 32, 1.0 x at 64")


@pytest.mark.parametrize(("strict", "status"), [([], 0), (["strict=true"], 3)])
def test_without_namespaces_the_answer_stands_and_no_proof_is_performed(
    strict: list[str], status: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(quickstart, "planned", lambda overrides: [settings("network=simulated")])
    parts = []
    monkeypatch.setattr(quickstart, "performed", lambda name, asked: parts.append(name))
    for name in ("times_by_rate", "draw"):
        monkeypatch.setattr(quickstart, name, lambda *of: None)
    monkeypatch.setattr(quickstart, "answer_lines", lambda *of: ["the answer"])
    assert door("quickstart", *strict) == status and parts == ["answer"]
    [answer, line] = capsys.readouterr().out.splitlines()
    assert answer == "the answer" and line == quickstart.NO_NAMESPACES


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ({"left_out": "", "grade": "valid", "late_at_most_share": 0.03}, "predicted 80"),
        ({"left_out": "", "grade": "valid", "late_at_most_share": 0.03, "dilation": 4.0},
         "predicted 80 (emulation.dilation=4)"),
        ({"left_out": "", "grade": "bounded", "late_at_most_share": 0.07}, "; counts within 7%: "
         "other programs had the processors"),
        ({"left_out": "invalid: a link", "grade": "invalid", "late_at_most_share": 0.07},
         "; does not count: a link"),
    ],
)  # fmt: skip
def test_a_proof_says_within_what_it_counts(monkeypatch, told, end):
    monkeypatch.setattr(quickstart.load, "steps", lambda path: path)
    monkeypatch.setattr(quickstart.metrics, "iteration_s", lambda steps: 0.08)
    of_run = {"method": "qsgd", "path": "a", "simulated": False, "dilation": 1.0}
    answer = runs(**of_run, rate_mbit=quickstart.PROOF_MBIT)
    [_, line] = quickstart.proof_lines(answer, runs(**of_run | told))
    assert line.endswith(end) and "80 ms a step" in line


def test_the_rates_follow_their_rule() -> None:
    """Powers of two from 1/32 to 4 times the balanced rate; the proof has a quarter of it."""
    shares = [rate / quickstart.BALANCED_MBIT for rate in quickstart.RATES_MBIT]
    assert shares == [2.0**power for power in range(-5, 3)]
    assert quickstart.PROOF_MBIT * 4 == quickstart.BALANCED_MBIT
