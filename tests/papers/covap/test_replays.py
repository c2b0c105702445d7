"""COVAP's claims on its tables and figures, by replays written by hand."""

import pandas as pd
import pytest

from harness.reporting import claims
from harness.reporting.analysis import load
from harness.reporting.claims.base import FAILS, HOLDS, NOT_DECIDABLE
from harness.reporting.claims.guards import CERTAIN
from papers.covap import replays
from tests.claims.tables import row, table

CCR = {"resnet101": 2.1, "vgg19": 4.0, "bert_cn": 3.1, "gpt2": 3.5}
COMPUTE_S, BACKWARD_S = 0.3, 0.2


def ran(
    experiment: str, model: str, method: str, step_s: float, workers: int = 64,
    conditions: dict | None = None, **known: float,
) -> dict:  # fmt: skip
    """A replay with so long a step, of which `COMPUTE_S` are computed."""
    told = {"model.name": model, "workers": workers, "model.times.backward_s": BACKWARD_S}
    told |= conditions or {}
    return row(
        experiment, method, conditions=CERTAIN | told, workers=workers, iteration_s=step_s,
        compute_s=COMPUTE_S, exposed_s=step_s - COMPUTE_S, throughput=1 / step_s,
        ccr=CCR[model] * BACKWARD_S / COMPUTE_S, overlap=method, **known,
    )  # fmt: skip


def of_table1(gains: dict[str, float]) -> list[dict]:
    rows = []
    for model, gain in gains.items():
        rows += [
            ran("covap_table1", model, replays.SERIAL, 1.0),
            ran("covap_table1", model, replays.DENSE, 1 / gain),
        ]
    return rows


def of_fig7(covap_s: float, power_s: float = 0.45, fp16_s: float = 0.5) -> list[dict]:
    took = dict.fromkeys(replays.RIVALS, 1.0) | {"FP16": fp16_s, "PowerSGD": power_s}
    rows = []
    for model in replays.MODELS:
        own = took | ({"FP16": 0.4} if model == "resnet101" else {})
        rows += [ran("covap_fig7", model, replays.RIVALS[name], own[name]) for name in own]
        rows.append(ran("covap_fig7", model, replays.covap_of(model), covap_s))
    return rows


def of_table2(top_k_s: float, sign_ccr: float) -> list[dict]:
    """Replays on 16 workers; signs of a byte each have an eighth of the links' efficiency."""
    slow, usual = ({"network.efficiency": value} for value in (0.04581, 0.36648))
    spent = dict.fromkeys(replays.OF_TABLE2, 0.1) | {"Top-k": top_k_s, "FP16": 0.01}
    rows = [
        ran("covap_table2", "vgg19", replays.OF_TABLE2[name], 1.0, 16, usual, compress_s=each)
        for name, each in spent.items()
    ]
    rows.append(ran("covap_table2", "vgg19", replays.SERIAL, 1.0, 16, usual))
    signs = replays.OF_TABLE2["EFsignSGD"]
    rows.append(ran("covap_table2", "vgg19", signs, 1.0, 16, slow) | {"ccr": sign_ccr})
    return rows


def test_compression_and_signs_of_table_2():
    assert verdicts(of_table2(1.5, 5.0), "covap_table2") == [HOLDS, HOLDS]
    assert verdicts(of_table2(0.05, 2.0), "covap_table2") == [FAILS, FAILS]


@pytest.mark.parametrize(("fp16_s", "verdict"), [(0.4, HOLDS), (0.5, FAILS)])
def test_overlap_is_near_linear(fp16_s, verdict):
    took = {replays.DENSE: 0.6, "fp16": fp16_s}
    rows = [ran("covap_table3", "resnet101", method, step_s) for method, step_s in took.items()]
    assert verdicts(rows, "covap_table3") == [verdict]


@pytest.mark.parametrize(("largest", "verdict"), [(0.6, HOLDS), (0.3, FAILS)])
def test_the_largest_bucket_takes_most_of_the_communication(largest, verdict, monkeypatch):
    told = {"model": "vgg19", "buckets": 6, "largest": largest, "hidden": 0.5}
    monkeypatch.setattr(load, "environment", lambda path: {"forms": [told]})
    rows = [ran("covap_table1", "vgg19", replays.SERIAL, 1.0)]
    assert verdicts(rows, "covap_table5") == [verdict]


@pytest.mark.parametrize(
    ("ok_topk_s", "power_s", "verdict"), [(0.05, 0.32, HOLDS), (0.2, 0.4, FAILS)]
)
def test_compression_and_what_power_sgd_exposes_of_figure_7(ok_topk_s, power_s, verdict):
    spent = {"Top-k": 0.5, "Ok-topk": ok_topk_s, "PowerSGD": 0.01}
    rows = [
        ran("covap_fig7", "resnet101", replays.RIVALS[name], power_s, compress_s=each)
        for name, each in spent.items()
    ]
    assert verdicts(rows, "covap_fig7") == [verdict, verdict]


def of_fig5(best: int) -> list[dict]:
    return [
        ran("covap_fig5", model, method, 0.4 if every == (3 if model == "resnet101" else best) else
            0.41)
        for model in replays.OF_TABLE1
        for method, every in replays.SWEPT.items()
    ]  # fmt: skip


def of_fig11(covap_s: float, power_s: float, grown: float) -> list[dict]:
    rows = [
        ran("covap_fig11", "resnet101", "covap_0.34", covap_s),
        ran("covap_fig11", "resnet101", replays.POWER, power_s),
    ]
    for method in ("randomk_0.01_int64_no_shared", "ef_signsgd"):
        rows.append(ran("covap_fig11", "resnet101", method, grown))
        rows.append(ran("covap_fig11", "resnet101", method, 1.0, workers=8))
    return rows


def verdicts(rows: list[dict], *ids: str) -> list[str]:
    """Of claims that are not on one model's timeline or training, nor on a narrow one."""
    found = claims.judge(table(*rows), "covap")
    alone = ("ResNet-101: ", "ResNet-101 itself: ", "ResNet-101, ", "VGG-19: ", "Bert: ", "GPT-2: ")
    alone += ("a narrow",)
    return [
        claim.verdict for claim in found if claim.id in ids and not claim.text.startswith(alone)
    ]


def test_what_overlap_gains_falls_with_communication():
    good = {"resnet101": 1.43, "vgg19": 1.22, "bert_cn": 1.28}
    assert verdicts(of_table1(good), "covap_table1") == [HOLDS, HOLDS, NOT_DECIDABLE]
    bad = good | {"vgg19": 1.6}
    assert verdicts(of_table1(bad), "covap_table1") == [HOLDS, FAILS, NOT_DECIDABLE]


def test_covap_is_the_fastest_and_hides_or_is_not():
    assert verdicts(of_fig7(0.31), "covap_fig7-10", "covap_table7") == [HOLDS] * 3
    assert verdicts(of_fig7(0.6), "covap_fig7-10", "covap_table7") == [FAILS] * 3


def test_speed_ups_by_interval():
    assert verdicts(of_fig5(4), "covap_fig5a", "covap_fig5bc") == [HOLDS, HOLDS]
    assert verdicts(of_fig5(8), "covap_fig5a", "covap_fig5bc") == [HOLDS, FAILS]


def test_scaling():
    assert verdicts(of_fig11(0.31, 0.5, 2.5), "covap_fig11a") == [HOLDS] * 3
    assert verdicts(of_fig11(0.4, 0.31, 1.1), "covap_fig11a") == [FAILS] * 3


@pytest.mark.parametrize(("whole", "verdict"), [(13.0, HOLDS), (1.3, FAILS)])
def test_sharding_balances_bytes(whole, verdict, monkeypatch):
    sent = {"covap_0.25": [5.0, 1.0, 1.1, 1.2, 1.0],
            "covap_0.25_no_sharding": [9.0, whole, 1, 1, 2]}  # fmt: skip
    tables = {m: pd.DataFrame({"step": range(5), "sent_bytes": s}) for m, s in sent.items()}
    monkeypatch.setattr(load, "steps", lambda path: tables[str(path)])
    rows = [ran("covap_fig4", "vgg19", method, 0.4, path=method) for method in sent]
    assert verdicts(rows, "covap_fig4") == [verdict]


@pytest.mark.parametrize(("found", "verdict"), [(4, HOLDS), (5, FAILS)])
def test_the_profilers_interval(found, verdict, monkeypatch):
    told = {model: 3 if model == "resnet101" else found for model in replays.MODELS}
    tables = {
        m: pd.DataFrame({"controller": ["{}", f'{{"interval": {i}}}']}) for m, i in told.items()
    }
    monkeypatch.setattr(load, "steps", lambda path: tables[str(path)])
    rows = [ran("covap_table1", m, replays.PROFILED, 0.4, path=m) for m in told]
    assert verdicts(rows, "covap_table1")[-1] == verdict


@pytest.mark.parametrize(("seen_s", "verdict"), [(0.36, HOLDS), (0.31, FAILS)])
def test_what_a_worker_sees_is_held_against_the_profile(seen_s, verdict, monkeypatch):
    steps = pd.DataFrame({"step": [1, 2, 2, 3], "comm_s": [9.0, 0.3, seen_s, 9.0]})
    told = steps.assign(controller='{"interval": 3, "comm_s": 0.3, "comp_s": 0.1, "ccr": 3.0}')
    monkeypatch.setattr(load, "steps", lambda path: told)
    rows = [ran("covap_fig3", "resnet101", replays.PROFILED, 1.0, workers=8)]
    assert verdicts(rows, "covap_fig3") == [verdict]


@pytest.mark.parametrize(("beyond_s", "verdict"), [(0.4, HOLDS), (0.3, FAILS)])
def test_a_narrow_bert_is_hardly_faster_beyond_4(beyond_s, verdict):
    took = (1.0, 0.7, 0.5, 0.4, beyond_s, beyond_s)
    told = {"conditions": {"model.name": replays.NARROW}}
    methods = zip(replays.SWEPT, took, strict=False)
    rows = [row("covap_fig5_packets", name, iteration_s=step_s, **told) for name, step_s in methods]
    found = claims.judge(table(*rows, copies=3), "covap")
    assert [claim.verdict for claim in found if claim.runs] == [verdict]
