"""NetSenseML's claims: the paper's own numbers meet them, others do not."""

from math import isnan
from pathlib import Path

import pandas as pd
import pytest

from harness.reporting import claims
from harness.reporting.analysis import load, metrics
from harness.reporting.claims import published
from harness.reporting.claims.base import BY_CONSTRUCTION, FAILS, HOLDS, NOT_DECIDABLE, Claim
from papers.netsense import measured
from papers.netsense.claims import CONTROLS, FORGETS
from papers.netsense.groups import (
    CONTENDED,
    DEGRADING,
    OVERHEAD,
    RATES,
    RESNET18,
    TABLE1,
    VGG16,
    WITHOUT,
)
from papers.netsense.measured import METHODS, TABLES
from tests import records_by_hand as by_hand
from tests.claims.tables import copied, row, sides, table
from tests.papers.netsense.speeds import at

MBIT = {"200Mbps": 200.0, "500Mbps": 500.0, "800Mbps": 800.0}
BYTES = {"NetSenseML": 0.06, "AllReduce": 1.0, "TopK-0.1": 1.2}


def as_published() -> list[dict]:
    """Runs of 8 workers that do what table 1 says, such of VGG16, and controls that lose."""
    read = pd.read_csv(Path(measured.__file__).with_name("published.csv"), keep_default_na=False)
    cells = read[read.id.isin(TABLES)]
    found = []
    for (id, network, method), group in cells.groupby(["id", "network", "method"]):
        told = dict(zip(group.metric, group.value, strict=True))
        reached = told["convergence_time"] != "N/A"
        time_s = float(told["convergence_time"]) if reached else 4000.0
        rate = {"profile.of.rate_mbit": MBIT[network]}
        known = at(float(told["training_throughput"])) | {"time_to_target_s": time_s, "ccr": 14.0}
        known |= {"best": float(told["best_test_accuracy"]) / 100, "volume_ratio": BYTES[method]}
        found.append(
            row(TABLES[id], METHODS[method], conditions=rate, workers=8, reached=reached, **known)
        )
    speeds = {"netsense": 155.0, "allreduce": 50.0, "topk_0.1_int64": 100.0}
    found += [
        row(VGG16, method, conditions={"profile.of.rate_mbit": mbit}, workers=8,
            time_to_target_s=1e4 / speed, **at(speed))
        for mbit in RATES[VGG16]
        for method, speed in speeds.items()
    ]  # fmt: skip
    finals = {"allreduce": 0.9} | dict.fromkeys(FORGETS, 0.1)
    found += [row(each.experiment, method, workers=8, final=final) for each in CONTROLS
              for method, final in finals.items()]  # fmt: skip
    stands_for = {True: "mlp_as_vgg16", False: "mlp_as_resnet18"}
    return [each | {"model": stands_for["vgg16" in each["experiment"]], "dataset": "glyphs"}
            for each in found]  # fmt: skip


def verdicts(rows: list[dict], start: str) -> dict[str, str]:
    found = claims.judge(table(*rows, copies=3), "netsenseml")
    return {claim.text: claim.verdict for claim in found if claim.id.startswith(start)}


@pytest.mark.parametrize("start", ["netsense_fig5", "netsense_fig6", "netsense_table2"])
def test_the_papers_own_tables_meet_its_claims(start):
    told = verdicts(as_published(), start)
    told = {text: verdict for text, verdict in told.items() if "smoothest" not in text}
    of_bytes = [told.pop(text) for text in list(told) if "TopK-0.1 beats" in text]
    assert len(told) >= 3 and set(told.values()) == {HOLDS} and set(of_bytes) <= {BY_CONSTRUCTION}


def test_table_1_and_the_abstract_hold_for_the_papers_numbers_five_times_does_not():
    told = verdicts(as_published() + of_table_1(), "netsense_table1")
    found = list(told.values())
    assert (found.count(HOLDS), found.count(BY_CONSTRUCTION)) == (len(told) - 4, 3)
    assert verdicts(as_published(), "netsense_abstract") == {
        "1.55 to 9.84 times the throughput of compression": HOLDS
    }
    assert list(verdicts(as_published(), "netsense_text_tta").values()) == [FAILS]  # 2.98


def test_a_competitor_that_is_faster_takes_the_claims():
    rows = as_published()
    for each in rows:
        if each["method"] == METHODS["AllReduce"]:
            each |= at(1e4) | {"time_to_target_s": 1.0, "reached": True}
    told = verdicts(rows, "netsense_fig") | verdicts(rows, "netsense_table")
    decided = {text: verdict for text, verdict in told.items() if "NetSenseML" in text}
    assert list(decided.values()).count(FAILS) == 4 * len(RATES[RESNET18])
    assert told[f"VGG16, {RATES[VGG16][0]:g} Mbit/s: TopK-0.1 beats AllReduce"] == BY_CONSTRUCTION


def test_of_a_workload_that_loses_nothing_no_quality_is_compared():
    rows = [each for each in as_published() if each["method"] not in FORGETS]
    rows += [each | {"final": 0.89} for each in as_published() if each["method"] in FORGETS]
    found = claims.judge(table(*rows, copies=3), "netsenseml")
    told = {claim.id: claim for claim in found}
    assert told["netsense_fig5a"].verdict == told["netsense_fig6"].verdict == NOT_DECIDABLE
    assert "topk_0.001_no_ef loses 0.011, not 0.15" in told["netsense_fig6"].reason


def test_without_evaluations_no_accuracy_is_compared():
    found = claims.judge(table(*as_published(), copies=3), "netsenseml")
    (claim,) = (c for c in found if "most accurate" in c.text)
    assert claim.verdict == NOT_DECIDABLE and "with evaluations" in claim.reason


def test_a_target_that_was_missed_is_not_reached_first():
    rows = [each | {"reached": each["method"] == "allreduce"} for each in as_published()]
    assert set(verdicts(rows, "netsense_fig6").values()) == {FAILS}


def test_fewer_workers_are_told_with_what_eight_would_send():
    rows = [each | {"workers": 4, "volume_ratio": 0.6} for each in as_published()]
    found = claims.judge(table(*rows, copies=3), "netsenseml")
    (told,) = (
        c.measured for c in found if c.text.startswith("ResNet18, 500") and "loses" in c.text
    )
    assert "P - 1 = 3 pieces" in told and "0.6 of allreduce's bytes on 4" in told
    assert told.endswith("would send 1.2 on 8")


def of_table_1() -> list[dict]:
    """The paper's numbers of ResNet18 in the replays, by both readings of the overhead."""
    rows = [each for each in as_published() if each["experiment"] == RESNET18]
    replayed = {"model": "resnet18", "dataset": "cifar", "loss_left": float("nan")}
    return [
        each
        | replayed
        | {"experiment": TABLE1, "conditions": each["conditions"] | {"network.device.name": device}}
        | {key: f"{device} {each[key]}" for key in ("setting", "run_id")}
        for device in (WITHOUT, OVERHEAD)
        for each in rows
    ]


def on_4_workers() -> list[dict]:
    """TopK-0.1 is the fastest there, at every rate."""
    speeds = {METHODS["TopK-0.1"]: 500.0}
    of_resnet18 = (RESNET18, CONTROLS[0].experiment)
    rows = [each for each in as_published() if each["experiment"] in of_resnet18]
    return [each | at(speeds.get(each["method"], 100.0)) | {"workers": 4} for each in rows]


def test_throughput_is_judged_on_the_papers_workers_where_they_ran():
    def told(rows: list[dict]) -> list[str]:
        found = verdicts(rows, "netsense_table1")
        return [found[text] for text in found if "highest" in text]

    assert told(on_4_workers()) == [NOT_DECIDABLE] * 3
    assert told(on_4_workers() + of_table_1()) == [HOLDS] * 3


def replay(folder: Path, method: str, ends: list[float], experiment: str) -> None:
    """A run of 8 workers whose steps end then, without an overhead of its own."""
    told = {"loss": float("nan")}  # nothing is trained
    rows = [
        by_hand.step(n, rank, time_s=t, **told) for n, t in enumerate(ends) for rank in range(2)
    ]
    links = [by_hand.LinkSample(0.0, "up0", 9.0, 9.0, 0, 0, 0)]
    network = {"_target_": "harness.virtual.network.Simulated", "device": {"name": WITHOUT}}
    of_run = {"experiment": experiment, "network": network, "workers": 8}
    of_run["emulation"] = {"dilation": 1.0, "compute": "replay"}
    by_hand.run(folder / method, by_hand.config(method, **of_run), rows, links=links)


def told_of(folder: Path, id: str) -> dict[str, Claim]:
    """Claims of that id on what was replayed in `folder`, by their texts."""
    found = claims.judge(copied(metrics.table(load.runs(folder))), "netsenseml")
    return {claim.text: claim for claim in found if claim.id == id}


@pytest.mark.parametrize(("last_s", "stable", "falling"), [
    ({"netsense": 0.1, "allreduce": 1.0, "topk_0.1_int64": 0.9}, HOLDS, HOLDS),
    ({"netsense": 0.2, "allreduce": 1.0, "topk_0.1_int64": 0.9}, FAILS, HOLDS),
    ({"netsense": 0.1, "allreduce": 0.1, "topk_0.1_int64": 0.9}, HOLDS, FAILS),
])  # fmt: skip
def test_stability_is_compared_over_the_time_all_have(tmp_path, last_s, stable, falling):
    """Of 100 steps each is longer than the one before by the same share of the whole way."""
    for method, last in last_s.items():
        lengths = [0.1 + (last - 0.1) * n / 99 for n in range(100)]
        replay(tmp_path, method, list(pd.Series(lengths).cumsum()), DEGRADING)
    told = told_of(tmp_path, "netsense_fig7")
    kept = told["degrading, without an overhead of its own: then it is stable"]
    assert kept.verdict == stable and len(kept.runs) == 9
    assert told["degrading: TopK-0.1 and AllReduce fall"].verdict == falling
    other = told["degrading, with an overhead of 0.168 s a step: then it is stable"]
    assert other.verdict == NOT_DECIDABLE and "no runs" in other.reason


def test_the_steadiest_and_fastest_under_contention(tmp_path):
    """Every other 10 s have long steps."""
    for method, long_s in {"netsense": 0.1, "allreduce": 0.5, "topk_0.1_int64": 0.3}.items():
        ends, now = [], 0.0
        while now < 60:
            now += long_s if int(now / 10) % 2 else 0.1
            ends.append(now)
        replay(tmp_path, method, ends, CONTENDED)
    told = told_of(tmp_path, "netsense_fig8")
    claim = told[
        "contended, without an overhead of its own: NetSenseML's throughput is the highest and "
        "the steadiest"
    ]
    assert claim.verdict == HOLDS and "netsense 20" in claim.measured


def test_the_ratio_at_the_floor_is_that_after_start_up():
    found = claims.judge(table(*of_table_1(), copies=3), "netsenseml")
    floor = {claim.text: claim for claim in found if "floor" in claim.text}
    assert len(floor) == 2 and {claim.verdict for claim in floor.values()} == {HOLDS}
    assert all("200 0.005, 500 0.005" in claim.measured for claim in floor.values())
    fast = [each | at(1e3 * (each["conditions"]["profile.of.rate_mbit"])) for each in of_table_1()]
    grows = [c for c in claims.judge(table(*fast, copies=3), "netsenseml") if "slowly" in c.text]
    assert [claim.verdict for claim in grows] == [FAILS, FAILS]


def test_throughputs_of_the_papers_tables_come_back_with_their_ratios():
    found = sides([each | {"scale": "paper"} for each in as_published()])
    speeds = found[found.metric == "training_throughput"]
    assert len(speeds) == 9 and speeds.measured.tolist() == pytest.approx(speeds.published)
    assert speeds.comparable.all() and (speeds.unit == "samples/s").all()
    ratios = found[found.metric == "throughput over AllReduce"]
    assert len(ratios) == 6 and ratios.measured.tolist() == pytest.approx(ratios.published)
    assert all(len(runs) == 2 for runs in ratios.runs)


def test_throughput_is_that_of_the_papers_workers_times_are_of_whoever_trains():
    found = sides(on_4_workers() + of_table_1())
    speeds = found[found.metric == "training_throughput"]
    assert len(speeds) == 9 and speeds.measured.tolist() == pytest.approx(speeds.published)
    assert not speeds.note.str.contains("4 workers").any()
    assert found[found.metric == "convergence_time"].note.str.contains("4 workers").all()


def test_a_time_that_was_never_reached_is_a_bound_beside_nothing():
    found = sides([each | {"converged": each["reached"]} for each in as_published()])
    times = found[found.metric == "convergence_time"]
    missing = times[times.published.isna()]
    assert len(missing) and set(missing.bound) == {"low"}


def test_absolute_numbers_of_a_stand_in_are_not_comparable_ratios_are():
    found = sides([each | {"workers": 4} for each in as_published()])
    kinds = found.groupby("metric").comparable.agg(set).to_dict()
    assert kinds["training_throughput"] == {False} and kinds["convergence_time"] == {False}
    assert kinds["throughput over AllReduce"] == {True}
    assert "4 workers, published with 8" in found.note.iloc[0]
    assert "absolute, of mlp_as_resnet18 on glyphs" in found.note.iloc[0]


def test_accuracies_are_those_when_netsenseml_had_its_best(tmp_path):
    steps = {"netsense": 1.0, "allreduce": 2.0, "topk_0.1_int64": 4.0}
    profile = {"_target_": "x", "of": {"_target_": "y", "rate_mbit": 200}}
    by_hand.sweep(tmp_path / "sweep", steps)
    for path in (tmp_path / "sweep").iterdir():
        config = load.config(path) | {"experiment": "netsense_resnet18_static", "profile": profile}
        by_hand.OmegaConf.save(by_hand.OmegaConf.create(config), path / "config.yaml")
        by_hand.seal(path)
    found = published.side_by_side(metrics.table(load.runs(tmp_path)))
    best = found[found.metric == "best_test_accuracy"].set_index("method").measured
    assert best["NetSenseML"] == pytest.approx(90.5) and best["AllReduce"] == pytest.approx(60.5)
    assert isnan(best["TopK-0.1"])
    assert found[found.method == "TopK-0.1"].note.str.contains("no evaluation before").any()
