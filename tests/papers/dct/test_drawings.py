"""Figures of DCT in the report: those that there are records for, of a sweep by hand and of one."""

import pytest

from harness.records.run_directory import WATCH_TABLES, Bin, Evaluation, Table, Watched
from harness.reporting.analysis import load
from harness.reporting.analysis.comparison import compare
from harness.reporting.report import report
from papers.dct import drawings as study
from tests import records_by_hand as by_hand
from tests.virtual.runs import DETERMINED, simulated

OF_SPARSITY = {"quality_sparsity", "loss_steps", "step_sparsity"}
OF_WATCH = {"thresholds_gradient", "thresholds_activations", "activations"}
RUN = ("workers=1", "batch_size=16", "model=mlp", "model.hidden=[40]", "parallel=split",
       "activations=dct_mp", "steps=6")  # fmt: skip
WATCH = ("+watch._target_=harness.config.watch.Watch", "+watch.every=2",
         "+watch.gradients=[3.weight]", "+watch.densities=[0.5,0.25]",
         "+watch.histogram_at=[0,4]")  # fmt: skip


def sweep(folder, lifespans=(1000,), densities=(1.0, 0.25, 0.1, 0.05), **network):
    """Two seeds of each; a step of density d takes d s, and its loss ends at 1 + d."""
    for density in densities:
        for lifespan in lifespans:
            method = "allreduce" if density == 1 else f"dct_dp_{density:g}"
            for seed in (0, 1):
                told = by_hand.config(method, seed, network=network, experiment="dct_fig8c")
                if density < 1:
                    told["compressor"] = told["compressor"] | {"lifespan": lifespan}
                steps = [
                    by_hand.step(n, time_s=density * (n + 1), achieved_density=density / 2)
                    for n in range(10)
                ]
                done = [Evaluation(10, 10 * density, "loss", 1 + density)]
                by_hand.run(folder / f"{method}-{lifespan}-{density}-{seed}", told, steps, done)
    return folder


def drawings(folder) -> dict:
    runs = load.runs(folder)
    compared = compare(runs[runs.left_out == ""])
    return study.of_comparison(compared)


def test_a_sweep_over_densities_has_its_figures_in_the_report(tmp_path):
    out = report(sweep(tmp_path / "r"), pdf=True)
    names = {path.stem for path in out.glob("*.svg")}
    assert names >= OF_SPARSITY | {"achieved_density"} and not names & OF_WATCH
    assert {path.stem for path in out.glob("*.pdf")} == names
    page = (out / "index.html").read_text()
    for name, drawing in drawings(tmp_path / "r").items():
        assert drawing.caption.split(",")[0] in page, name


def test_axes_are_of_what_was_sent_which_is_half_of_what_was_asked(tmp_path):
    found = drawings(sweep(tmp_path / "r"))
    (axes,) = found["step_sparsity"].draw().axes
    assert [text.get_text() for text in axes.get_xticklabels()] == [
        "allreduce", "88 %", "95 %", "97.5 %",
    ]  # fmt: skip
    quality, *_ = found["quality_sparsity"].draw().axes
    assert [text.get_text() for text in quality.get_xticklabels()] == ["88", "95", "97.5"]


def test_step_times_are_in_order_and_against_the_baseline_s(tmp_path):
    (axes,) = drawings(sweep(tmp_path / "r"))["step_sparsity"].draw().axes
    assert [text.get_text() for text in axes.texts] == ["", "-75 %", "-90 %", "-95 %"]
    loss, *_ = drawings(tmp_path / "r")["quality_sparsity"].draw().axes
    points = [c.lines[0].get_ydata().tolist() for c in loss.containers]
    assert points == [pytest.approx([100 * (value / 2 - 1) for value in (1.25, 1.1, 1.05)])]


def test_life_spans_have_step_times_where_thresholds_took_their_time(tmp_path):
    sweep(tmp_path / "r", lifespans=(1, 100), densities=(0.05,))
    found = drawings(tmp_path / "r")
    assert set(found) == {"achieved_density", "loss_steps", "step_lifespan"}
    labels = found["step_lifespan"].draw().axes[0].get_xticklabels()
    assert [text.get_text() for text in labels] == ["1", "100"]
    device = {"name": "V100", "costs": {"other": {"element_ns": 20}}}
    assumed = sweep(tmp_path / "assumed", (1, 100), (0.05,), device=device)
    assert "step_lifespan" not in drawings(assumed)
    of_densities = drawings(sweep(tmp_path / "densities", device=device))
    assert "costs by V100" in of_densities["step_sparsity"].caption


def test_without_sweep_or_watch_there_are_none(tmp_path):
    assert drawings(by_hand.sweep(tmp_path / "r", {"allreduce": 1.0, "topk_0.1": 0.5})) == {}


def test_settings_side_by_side_have_one_figure_of_all(tmp_path):
    compared = {}
    for stages in ("2 stages", "3 stages"):
        runs = load.runs(sweep(tmp_path / stages))
        compared[stages] = compare(runs)
    (drawing,) = study.of_experiment(compared).values()
    assert [axes.get_title() for axes in drawing.draw().axes] == list(compared)
    one_each = compare(load.runs(by_hand.sweep(tmp_path / "x", {"allreduce": 1.0})))
    assert study.of_experiment({"a": one_each, "b": one_each}) == {}


def test_a_watch_s_records_are_drawn_of_the_method_that_leaves_nothing_out(tmp_path):
    for name, kept in (("dct_mp_1", 1.0), ("dct_mp_0.1", 0.1)):
        activations = {"_target_": "compressors.activations.dct_mp.DCTMP", "density": kept}
        path = by_hand.run(
            tmp_path / "r" / name, by_hand.config(name, activations=activations),
            [by_hand.step(n) for n in range(5)],
        )  # fmt: skip
        tables = {file: Table(path, file) for file in WATCH_TABLES}
        for table in tables.values():
            table.header()
        tables["watched.csv"].append(
            *[Watched(s, 0, of, 0.1, kept + s, 3.0) for s in (0, 2) for of in ("w", "cut0")]
        )
        tables["histograms.csv"].append(
            *[Bin(2, 0, "cut0", b / 10, (b + 1) / 10, 10, 0.5, 0.3) for b in range(10)]
        )
        by_hand.seal(path)
    found = drawings(tmp_path / "r")
    assert set(found) == OF_WATCH
    lines = {
        name: [line.get_ydata().tolist() for line in found[name].draw().axes[0].get_lines()]
        for name in OF_WATCH - {"activations"}
    }
    assert lines["thresholds_gradient"] == [[1, 3]]
    assert sorted(lines["thresholds_activations"]) == [pytest.approx([0.1, 2.1]), [1, 3]]
    assert "dct_mp_1" in found["activations"].caption


def test_all_is_drawn_of_real_watched_runs(tmp_path):
    """DCT's figures 2, 5, 6a and 6b, of three short runs in virtual time."""
    for density in (1, 0.5, 0.25):
        asked = (*RUN, *WATCH, f"activations.density={density}", *DETERMINED)
        simulated(tmp_path / "r" / f"{density}", *asked)
    found = load.runs(tmp_path / "r")
    assert (found.state == "succeeded").all(), found.left_out.tolist()
    drawn = drawings(tmp_path / "r")
    wanted = OF_WATCH | {"achieved_activation_density", "quality_sparsity", "loss_steps"}
    assert set(drawn) >= wanted and all(drawn[name].draw().axes for name in wanted)
