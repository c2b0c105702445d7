"""The report of hand-made sweeps, end to end."""

import json
import os
import re
import subprocess
import sys
from itertools import combinations

import pandas as pd
import pytest

from harness.records.run_directory import Evaluation, write_json
from harness.reporting.analysis import figure_catalog, load, proof
from harness.reporting.figures import theme
from harness.reporting.figures.styles import style, styles
from harness.reporting.report import compare, draw, report
from tests import records_by_hand as by_hand
from tests.launching import completed

STEP_S = {"allreduce": 1.0, "topk_0.1": 0.5, "dc2_da2": 0.25}
FIGURES = {"time_to_target", "quality_over_time", "throughput", "quality_time", "quality_curves"}
FIGURES |= {"quality_steps", "quality_density"}
OF_STEPS = {"density_time", "goodput_time", "breakdown", "throughput_time", "running_goodput"}
OF_STEPS |= {"density_throughput"}
FIGURES |= OF_STEPS


def drawn(out) -> set[str]:
    assert not list(out.glob("*.pdf"))
    return {path.stem for path in out.glob("*.svg")}


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_report_of_a_sweep_from_the_command_line(tmp_path):
    folder = by_hand.sweep(tmp_path / "by_hand", STEP_S)
    failed = {"state": "failed", "error": "rank 1 lost"}
    by_hand.run(folder / "lost", by_hand.config("topk_0.1", 5), status=failed)
    command = [sys.executable, "-m", "harness.report", str(folder)]
    told = completed(command, 120)
    assert told.returncode == 0, told.stderr
    assert "1 of 7 runs are left out" in told.stdout
    assert "failed: rank 1 lost: top-k 10 % seed 5 (lost)" in told.stdout
    out = folder / "report"
    assert drawn(out) == FIGURES
    first, *_, last = told.stdout.splitlines()
    assert first.startswith(
        "DC2 (DA2) is first: it reaches accuracy 0.8 after 2.5 s (2.5 to 2.5, 2"
    )
    assert last.startswith("all-reduce, the baseline, takes 4.00 times as long (4.00 to 4.00, 2 p")
    assert str(out / "index.html") in told.stdout.splitlines()
    table = pd.read_csv(out / "comparison.csv").set_index("method")
    assert table.speedup.to_dict() == pytest.approx({"allreduce": 1, "topk_0.1": 2, "dc2_da2": 4})
    speeds = {"allreduce": 20, "topk_0.1": 40, "dc2_da2": 80}
    assert table.throughput.to_dict() == pytest.approx(speeds)
    assert table.time_to_target_s.to_dict() == {"allreduce": 10, "topk_0.1": 5, "dc2_da2": 2.5}
    assert table.final["topk_0.1"] == pytest.approx(0.905) and set(table.seeds) == {2}


def test_the_table_fits_and_says_what_it_means(tmp_path, capsys):
    name = "powersgd_rank4_with_a_long_name"
    report(by_hand.sweep(tmp_path / "by_hand", {"allreduce": 10_000.0, name: 1e-3}))
    text = capsys.readouterr().out
    said = [f"{name} is first", str(tmp_path)]  # lines of text, which a terminal folds
    table = [line for line in text.splitlines() if not any(each in line for each in said)]
    assert max(map(len, table)) <= 100
    assert "volume ratio" in one_line(" ".join(line[-8:] for line in table[:7]))
    assert "target: accuracy 0.8" in text and "95 % interval" in text
    assert "without the first 2 steps" in text


@pytest.mark.parametrize("make", ["missing", "empty", "failed"])
def test_without_a_run_that_counts_one_line_and_exit_status_1(tmp_path, make):
    folder = tmp_path / "nothing"
    if make != "missing":
        folder.mkdir()
    if make == "failed":
        by_hand.run(folder / "r", by_hand.config("topk"), status={"state": "failed"})
    command = [sys.executable, "-m", "harness.report", str(folder)]
    told = completed(command, 120)
    assert told.returncode == 1
    assert str(folder) in told.stderr and len(told.stderr.splitlines()) == 1
    assert ("failed: top-k 1 % seed 0" in told.stdout) == (make == "failed")


def test_one_method_one_seed_without_baseline(tmp_path, capsys):
    out = report(by_hand.sweep(tmp_path / "by_hand", {"topk_0.1": 0.5}, seeds=1))
    text = capsys.readouterr().out
    assert "one method: nothing to compare it with" in text
    assert "no run without compression counts: the normalised columns are empty" in text
    assert "one seed per method: no intervals" in text
    assert drawn(out) == FIGURES - {"quality_over_time", "throughput"}


def test_an_interval_ends_where_its_metric_does(tmp_path):
    for seed, accuracy in enumerate((0.1, 0.9)):
        tested = [Evaluation(n, 0.5 * n, "accuracy", accuracy) for n in (1, 2)]
        rows = [by_hand.step(n, rank) for n in range(2) for rank in range(2)]
        by_hand.run(tmp_path / f"r/{seed}", by_hand.config("topk_0.1", seed), rows, tested)
    curve = figure_catalog.quality(compare(load.runs(tmp_path / "r"), None))["topk_0.1"]
    assert (curve.value == 0.5).all() and (curve.low == 0).all() and (curve.high == 1).all()


def test_a_method_has_one_colour_in_all_figures_and_curves_of_a_page(tmp_path, monkeypatch):
    """Two settings: in the second one the method that had the name's own colour is not there."""
    names = ["topk_0.1", *(f"topk_{n / 100}" for n in range(11, 60))]
    named = next(
        [a, b] for a, b in combinations(names, 2) if styles([a, b])[b].color != style(b).color
    )
    wanted = [f"top-k {100 * float(name[5:]):g} %" for name in named]
    for workers, methods in ((2, named), (4, named[1:])):
        for method in [*methods, "allreduce"]:
            rows = [by_hand.step(n, rank) for n in range(5) for rank in range(2)]
            tested = [Evaluation(n, 0.5 * n, "accuracy", n / 5) for n in range(1, 6)]
            settings = by_hand.config(method, workers=workers)
            by_hand.run(tmp_path / "r" / f"{method}-{workers}", settings, rows, tested)
    seen: dict[str, set[str]] = {}
    save = theme.save

    def noted(figure, *more):
        for legend in figure.legends:
            for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
                look = handle.get_color() if hasattr(handle, "get_color") else None
                if text.get_text() in wanted and look:
                    seen.setdefault(text.get_text(), set()).add(str(look))
        return save(figure, *more)

    monkeypatch.setattr(theme, "save", noted)
    page = (report(tmp_path / "r") / "index.html").read_text()
    for curve in re.findall(r"<script type=.application/json.>(.*?)</script>", page, re.DOTALL):
        for each in json.loads(curve)["curves"]:
            if each["name"] in wanted:
                seen.setdefault(each["name"], set()).add(each["look"]["stroke"])
    assert set(seen) == set(wanted) and [len(seen[name]) for name in wanted] == [1, 1], seen


BREAKING = """text.usetex: True
backend: NoSuchBackend
font.family: No Such Font
font.size: 40
savefig.bbox: tight
svg.fonttype: path
axes.prop_cycle: cycler("color", ["red"])
"""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize("surroundings", ["matplotlibrc", "ASCII", "ASCII by its locale alone"])
def test_the_users_surroundings_change_no_figure_and_no_page(surroundings, tmp_path):
    folder = by_hand.sweep(tmp_path / "by_hand", STEP_S)
    usual = report(folder, out=tmp_path / "usual")
    (tmp_path / "matplotlibrc").write_text(BREAKING)
    rc = {"MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    command = [sys.executable, "-m", "harness.report", str(folder), "--out", str(tmp_path / "own")]
    by_locale = {key: value for key, value in ASCII.items() if key != "PYTHONIOENCODING"}
    more = {"matplotlibrc": rc, "ASCII": ASCII}.get(surroundings, by_locale)
    done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "DC2 (DA2) is first: it reaches accuracy 0.8" in done.stdout
    for file in usual.glob("*.svg"):
        assert (tmp_path / "own" / file.name).read_bytes() == file.read_bytes(), file.name
    assert len((tmp_path / "own" / "index.html").read_bytes()) > 10_000


def test_another_baseline(tmp_path):
    folder = by_hand.sweep(tmp_path / "by_hand", STEP_S, seeds=1)
    out = report(folder, baseline="topk_0.1", out=tmp_path / "elsewhere")
    table = pd.read_csv(out / "comparison.csv")
    assert out == tmp_path / "elsewhere"
    assert table.method.tolist() == ["dc2_da2", "topk_0.1", "allreduce"]
    assert table.speedup.tolist() == pytest.approx([2, 1, 0.5])


def test_replay_has_no_quality_but_throughput(tmp_path, capsys):
    replayed = {"dilation": 1.0, "compute": "replay"}
    for method, step_s in STEP_S.items():
        rows = [by_hand.step(n, time_s=step_s * (n + 1), loss=float("nan")) for n in range(5)]
        by_hand.run(tmp_path / "r" / method, by_hand.config(method, emulation=replayed), rows)
    out = report(tmp_path / "r")
    text = capsys.readouterr().out
    assert text.startswith("No run was evaluated") and "no evaluations: neither quality" in text
    assert "diverged" not in text
    assert "no figure quality_curves" in text
    assert drawn(out) == {"throughput", *OF_STEPS}


@pytest.mark.parametrize(("compute", "until_s"), [("replay", 20.0), ("paced", 40.0)])
def test_replays_are_shown_over_time_until_the_first_is_done(tmp_path, compute, until_s):
    for method, step_s in {"allreduce": 1.0, "dc2_da2": 0.5}.items():
        rows = [by_hand.step(n, time_s=step_s * (n + 1)) for n in range(40)]
        emulation = {"dilation": 1.0, "compute": compute}
        by_hand.run(tmp_path / method, by_hand.config(method, emulation=emulation), rows)
    figure = draw(compare(load.runs(tmp_path)))["throughput_time"]()
    ends = [max(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata())]
    assert max(ends) == until_s and min(ends) == 20.0


def test_a_target_not_reached_is_shown_as_more_than_the_run(tmp_path, capsys):
    folder = by_hand.sweep(tmp_path / "by_hand", {"allreduce": 1.0, "topk_0.1": 0.5}, steps=8)
    for path in folder.iterdir():
        text = (path / "config.yaml").read_text().replace("value: 0.8", "value: 0.905")
        (path / "config.yaml").write_text(text)
        by_hand.seal(path)
    report(folder)
    text = capsys.readouterr().out
    assert "> 8" in text and "1 of 2" in text and "target not reached" in text
    assert text.startswith("No method reaches accuracy 0.905 in every run.")


def test_only_the_newest_of_two_equal_runs_counts(tmp_path, capsys):
    folder = by_hand.sweep(tmp_path / "by_hand", {"allreduce": 1.0}, seeds=1)
    rows = [by_hand.step(n, time_s=2.0 * (n + 1)) for n in range(5)]
    ended = {"ended": "2026-01-01T00:00:00+00:00"}
    by_hand.run(folder / "newer", by_hand.config("allreduce"), rows, status=ended)
    table = pd.read_csv(report(folder) / "comparison.csv")
    assert table.time_s.tolist() == [10] and table.seeds.tolist() == [1]
    assert "older run of the same method and seed" in capsys.readouterr().out


def test_settings_are_never_mixed(tmp_path, capsys):
    folder = by_hand.sweep(tmp_path / "by_hand", {"allreduce": 1.0, "topk_0.1": 0.5}, seeds=1)
    other = by_hand.config("topk_0.1", workers=4)
    by_hand.run(folder / "four", other, [by_hand.step(n) for n in range(5)])
    out = report(folder)
    text = capsys.readouterr().out
    assert "4 workers" in text and "apart by: workers 2" in text and "apart by: workers 4" in text
    settings = load.runs(folder).setting.unique()
    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        f"by_hand-{name}" for name in settings
    }
    assert drawn(out) == {"by_hand-quality_conditions"} and (out / "index.html").exists()


def test_of_a_dumbbell_the_network_the_trunk_and_the_proof_are_shown(tmp_path, capsys):
    folder = tmp_path / "r"
    by_hand.contended(folder / "a")
    by_hand.contended(folder / "b", "topk_0.1", grade="bounded", late_at_most_share=0.07)
    reasons = ["node 1 sent; its shaper did not see it", "a link was " + "very " * 20 + "late"]
    bad = by_hand.contended(folder / "bad", "topk_0.1", valid=False, reasons=reasons)
    write_json(bad / "status.json", {"state": "invalid"})
    by_hand.seal(bad)
    out = report(folder)
    text = capsys.readouterr().out
    assert {"network", "links_time"} <= drawn(out)
    assert "1 of 3 runs are left out" in text and "  invalid: top-k 10 % seed 0 (bad)" in text
    assert "    - node 1 sent; its shaper did not see it\n    - a link was very" in text
    proofs = pd.read_csv(out / "proof.csv").set_index("run_id")
    assert set(proofs.index) == {"a", "b"}
    found = proofs.loc["a"]
    assert (found.probe, found.headroom, found.idle_share, found.late_ms) == (0.95, 10, 0.5, 3)
    assert found.others_share == 0.125
    assert (found.delivered, found.delivered_worst, found.pressure) == (0.97, 0.9, 0.25)
    assert (found.pauses, found.changed_outside) == (0, 0)
    assert (found.drops, found.retransmits) == (80, 4)
    assert (found.bytes_low, found.bytes_high) == pytest.approx((1.1, 1.1))
    [row] = [
        line for line in text.splitlines() if line.startswith(" top-k 10 %") and "0.95" in line
    ]
    cells = ["top-k", "10", "%", "1", "0.95", "10", "50", "12.5", "7", "0.97", "3", "80", "1.1",
             "1.1"]  # fmt: skip
    assert row.split() == cells


def test_runs_that_say_nothing_of_their_proof_have_an_empty_one(tmp_path, capsys):
    report(by_hand.sweep(tmp_path / "by_hand", {"allreduce": 1.0}, seeds=1))
    text = capsys.readouterr().out
    assert "no figure network" in text
    assert pd.read_csv(tmp_path / "by_hand" / "report" / "proof.csv").probe.isna().all()


def test_of_workers_who_share_a_node_a_part_of_the_bytes_is_expected(tmp_path):
    run = by_hand.contended(tmp_path / "r" / "a")
    text = (run / "config.yaml").read_text() + "workers_per_node: 2\n"
    (run / "config.yaml").write_text(text)
    by_hand.seal(run)
    table = proof.of_runs(load.runs(tmp_path / "r"))
    found = [table.bytes_low[0], table.bytes_high[0]]
    assert found == pytest.approx([220 / (100 / 2 + 100), 110 / (100 / 2)])


def test_the_decision_is_without_a_damaged_run_and_says_so(tmp_path):
    folder = by_hand.sweep(tmp_path / "by_hand", STEP_S)
    for seed in (0, 1):  # of whom would be first
        by_hand.tear(folder / f"dc2_da2-{seed}" / "evaluations.csv")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "config.yaml").write_text("method: {name: dc2_da2}\nseed: [1]\n")
    told = completed([sys.executable, "-m", "harness.report", str(folder)], 120)
    assert told.returncode == 1, told.stderr
    first, left_out, *rest = told.stdout.splitlines()
    assert first.startswith(
        "top-k 10 % is first: it reaches accuracy 0.8 after 5 s (5 to 5, 2 seeds)"
    )
    assert left_out == "3 of 7 runs are left out of averages and figures:"
    assert "DC2 (DA2) seed 0 (dc2_da2-0)" in told.stdout and "(foreign)" in told.stdout
    page = (folder / "report" / "index.html").read_text()
    assert page.index(first[:40]) < page.index("3 of 7 runs are left out") < page.index("<nav")
    assert rest[-1] == first


def test_a_report_without_a_target_ranks_nothing(tmp_path, capsys):
    for method, step_s in STEP_S.items():
        rows = [by_hand.step(number, time_s=step_s * (number + 1)) for number in range(5)]
        tested = [Evaluation(5, 5 * step_s, "accuracy", 0.5)]
        none = by_hand.config(method, target={"metric": "accuracy", "value": None})
        by_hand.run(tmp_path / "r" / method, none, rows, tested)
    out = report(tmp_path / "r")
    text = capsys.readouterr().out
    assert text.startswith("No target is set, so no method is ranked by when it gets there: ")
    assert "write target.value= and the accuracy to reach; all-reduce ends at 0.5" in text
    assert "no figure time_to_target: no target was set" in text
    table = pd.read_csv(out / "comparison.csv")
    assert table.method.tolist() == ["allreduce", "dc2_da2", "topk_0.1"]
    assert table.place.isna().all() and table.over_first.isna().all()
