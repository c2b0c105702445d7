"""Virtual time against real packets, on hand-made records whose answer is known."""

import pandas as pd
import pytest

from harness.config.scales import composed
from harness.records.run_directory import Evaluation
from harness.reporting.analysis import agreement, load
from harness.reporting.report import report
from harness.runner import run
from harness.validation import checked
from tests import records_by_hand as by_hand

REAL = {"_target_": "harness.emulation.star.Star", "queue_ms": 50}
VIRTUAL = {"_target_": "harness.virtual.network.Simulated", "alpha_s": 1e-3}
DA2 = {"_target_": "controllers.dc2.DA2"}


def a_run(folder, name, network, step_s, method="allreduce", density=1.0, status=None, **other):
    """Six steps of `step_s`, at the slower of two ranks."""
    steps = [
        by_hand.step(n, rank, time_s=step_s * (n + (1.0 if rank else 0.9)), density=density)
        for n in range(6)
        for rank in range(2)
    ]
    config = by_hand.config(method, network=network, **other)
    return by_hand.run(folder / name, config, steps, status=status)


def pairs(folder) -> pd.DataFrame:
    runs = load.runs(folder)
    return agreement.paired(runs[runs.left_out == ""])


def test_errors_of_a_pair_are_over_what_was_real(tmp_path):
    a_run(tmp_path, "real", REAL, 0.5, "dc2_da2", density=0.1, controller=DA2)
    a_run(tmp_path, "virtual", VIRTUAL, 0.45, "dc2_da2", density=0.11, controller=DA2)
    found = pairs(tmp_path)
    [row] = found.itertuples()
    assert (row.method, row.workers, row.controlled) == ("dc2_da2", 2, True)
    assert (row.real_s, row.virtual_s, row.error) == pytest.approx((0.5, 0.45, -0.1))
    assert (row.real_density, row.virtual_density) == pytest.approx((0.1, 0.11))
    assert row.density_error == pytest.approx(0.1)
    assert agreement.summary(found) == pytest.approx((1, 0.1, 0.1, 1, 0.1, 0.1))


@pytest.mark.parametrize("difference", [
    {"workers": 4},
    {"seed": 1},
    {"overlap": "after_backward"},
    {"compressor": {"_target_": "compressors.topk.TopK"}},
    {"profile": {"_target_": "profiles.static.Static", "rate_mbit": 20}},
    {
        "network": VIRTUAL
        | {"_target_": "harness.virtual.network.SimulatedDumbbell", "left": None}
    },
    {"network": VIRTUAL | {"left": 1}},
])  # fmt: skip
def test_runs_that_differ_in_more_than_the_network_are_no_pair(tmp_path, difference):
    a_run(tmp_path, "real", REAL, 0.5)
    config = by_hand.config("allreduce", **({"network": VIRTUAL} | difference))
    by_hand.run(tmp_path / "virtual", config, [by_hand.step(n) for n in range(6)])
    assert pairs(tmp_path).empty


def test_dumbbells_of_both_kinds_are_a_pair_and_so_are_networks_asked_at_other_times(tmp_path):
    left = {"left": 1, "update_s": 0.1}
    a_run(tmp_path, "real", left | {"_target_": "harness.emulation.dumbbell.Dumbbell"}, 0.5)
    simulated = left | {"_target_": "harness.virtual.network.SimulatedDumbbell", "update_s": 0.2}
    a_run(tmp_path, "virtual", simulated, 0.5)
    assert len(pairs(tmp_path)) == 1


def test_the_last_valid_real_run_counts_for_every_simulated_network(tmp_path):
    for name, step_s, when, state in (
        ("old", 9.0, "2026-01-01", "succeeded"),
        ("new", 0.5, "2026-01-02", "succeeded"),
        ("bad", 7.0, "2026-01-03", "invalid"),
    ):
        status = {"state": state, "ended": when}
        a_run(tmp_path, name, REAL, step_s, status=status, results=name)
    a_run(tmp_path, "one", VIRTUAL, 0.5)
    a_run(tmp_path, "other", VIRTUAL | {"alpha_s": 0.0}, 0.4)
    found = pairs(tmp_path)
    assert sorted(found.error) == pytest.approx([-0.2, 0.0])
    assert found.virtual.nunique() == 2


def test_summaries_are_of_absolute_errors_and_densities_of_controllers_alone(tmp_path):
    for n, (virtual_s, workers) in enumerate(((0.5, 2), (0.45, 2), (0.6, 4))):
        other = {"seed": n, "workers": workers}
        a_run(tmp_path, f"real{n}", REAL, 0.5, **other)
        a_run(tmp_path, f"virtual{n}", VIRTUAL, virtual_s, density=0.5, **other)
    found = pairs(tmp_path)
    total = agreement.summary(found)
    assert (total.pairs, total.controlled) == (3, 0)
    assert (total.median, total.worst) == pytest.approx((0.1, 0.2))
    assert total.density_worst != total.density_worst  # nan
    table = agreement.by(found, "workers").set_index("workers")
    assert table.worst.to_dict() == pytest.approx({2: 0.1, 4: 0.2})


def evaluated(folder, name, network, method, step_s, reached, steps=6):
    """A run whose accuracy is 0.9 from step `reached` on, of a target of 0.8; None: never."""
    rows = [by_hand.step(n, time_s=step_s * (n + 1)) for n in range(steps)]
    seen = [
        Evaluation(n, step_s * n, "accuracy", 0.9 if reached and n >= reached else 0.5)
        for n in range(1, steps + 1)
    ]
    return by_hand.run(folder / name, by_hand.config(method, network=network), rows, seen)


def test_an_order_is_that_of_packets_or_says_who_is_swapped(tmp_path):
    for method, real, virtual in (
        ("allreduce", (0.5, 4), (0.5, 4)),
        ("topk_0.1", (0.4, 3), (0.3, None)),
        ("qsgd", (0.3, None), (0.4, None)),
    ):
        evaluated(tmp_path, f"real_{method}", REAL, method, *real)
        evaluated(tmp_path, f"virtual_{method}", VIRTUAL, method, *virtual)
    found = agreement.orders(pairs(tmp_path)).set_index("by")
    assert set(found.index) == {"step", "time to target"} and set(found.methods) == {3}
    assert found.kendall["step"] == pytest.approx(1 / 3)  # one of three pairs of methods is swapped
    assert found.swapped["step"] == "qsgd and topk_0.1"
    # Over packets topk_0.1 is first; in virtual time it is never there, and equal to qsgd.
    assert found.swapped["time to target"] == "topk_0.1 and allreduce"
    assert found.kendall["time to target"] == pytest.approx(0)


def test_an_order_is_of_the_seeds_that_all_methods_have():
    # On every seed allreduce is first in both; its seed 5 alone is slow enough to turn its mean.
    step_s = {"allreduce": {0: 1.0, 1: 1.1, 2: 1.2, 5: 99.0}, "topk_0.1": {0: 2.0, 1: 2.1, 2: 2.2}}
    kept = pd.DataFrame(
        {"virtual": "v", "condition": "static", "workers": 4, "method": method, "seed": seed,
         "network_seed": seed, "real_s": value, "virtual_s": 1.0 if seed == 5 else value}
        for method, of_seeds in step_s.items() for seed, value in of_seeds.items()
    )  # fmt: skip
    [found] = agreement.orders(kept).itertuples()
    assert (found.methods, found.kendall, found.swapped) == (2, 1.0, "")


def test_an_order_of_kept_pairs_is_of_each_experiment_alone():
    kept = pd.read_csv("results/reference/acp_sgd/agreement.csv")
    found = agreement.orders(kept)
    assert set(found.experiment) == set(kept.experiment) and set(found.by) == {"step"}
    assert found.kendall.between(-1, 1).all()


def test_conditions_are_told_apart_by_what_differs(tmp_path):
    for rate in (50, 800):
        profile = {"_target_": "profiles.static.Static", "rate_mbit": rate}
        for kind, network in (("real", REAL), ("virtual", VIRTUAL)):
            a_run(tmp_path, f"{kind}{rate}", network, 0.5, profile=profile)
    assert set(pairs(tmp_path).condition) == {"static, rate_mbit 50", "static, rate_mbit 800"}


def test_a_report_shows_pairs_where_there_are_some(tmp_path, capsys):
    a_run(tmp_path / "r", "real", REAL, 0.5)
    out = report(tmp_path / "r")
    assert "against real packets" not in capsys.readouterr().out
    a_run(tmp_path / "r", "virtual", VIRTUAL, 0.6)
    report(tmp_path / "r", out=tmp_path / "alone", agreement_alone=True)
    assert {path.stem for path in (tmp_path / "alone").iterdir()} == {"agreement"}
    report(tmp_path / "r")
    text = capsys.readouterr().out
    assert "virtual time against real packets" in text and "+20" in text
    assert pd.read_csv(out / "agreement.csv").error.tolist() == pytest.approx([0.2])
    assert (out / "agreement.svg").stat().st_size > 5000 and str(out / "agreement.svg") in text


@pytest.mark.launch
def test_a_real_run_and_its_twin_agree(tmp_path):
    """Of a step that its bytes take: rates rule, whatever else this machine has to do."""
    asked = ["method=allreduce", "workers=2", "steps=4", "eval_every=100", "profile.rate_mbit=20"]
    asked += ["emulation.compute=paced", "emulation.dilation=2", f"results={tmp_path}"]
    for network in ("netns", "simulated"):
        settings, _ = composed([f"network={network}", *asked])
        checked(settings)
        outcome = run.perform(settings)
        assert outcome.state in ("succeeded", "invalid"), outcome.error  # a busy machine's
    found = agreement.paired(load.runs(tmp_path))
    assert len(found) == 1
    assert found.virtual_s[0] > 0.2  # 640 KB at 20 Mbit/s
    assert abs(found.error[0]) < 0.3
