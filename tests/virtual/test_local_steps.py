"""Local steps: what holds of them on every network, and what real ranks train."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from harness.reporting.analysis import load, metrics
from harness.workloads.data.loader import Batches
from tests.virtual.runs import DETERMINED, over_gloo, settings_of, simulated, weights

SGD = ("optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0")
ADAMW = ("optimizer.kind=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.1")
PLAIN = ("parallel.outer=none", "parallel.outer_momentum=0", "parallel.outer_lr=1")
RUN = ("steps=12", "batch_size=8", "eval_every=6", *DETERMINED)
LOCAL = (*RUN, "parallel=local")
STREAMING = ("parallel.h=6", "parallel.fragments=2", "parallel.lag=1", "parallel.blend=0.5")
RUNS = {
    "diloco": ("parallel.h=4", *ADAMW),
    "streaming top-k": (*STREAMING, "method=topk", "controller.density=0.1",
                        "parallel.warmup_rounds=2"),
    "batch-norm": ("parallel.h=3", "parallel.fragments=3", "parallel.pattern=sequential",
                   "model=resnet20", "model.depth=8", "steps=6", "method=acp_sgd"),
    "agreed": ("parallel.h=2", "method=topk", "controller=warmup", "controller.agree=min",
               "parallel.outer=momentum", "accumulate=2"),
    "gossip": ("parallel.h=3", "parallel.peers=pair", "parallel.outer=momentum",
               "parallel.outer_momentum=0.3", "workers=3"),
}  # fmt: skip
RESUMED = [("diloco", 6), ("streaming top-k", 7), ("agreed", 5), ("gossip", 7)]
EQUAL = ["step", "rank", "loss", "samples", "sent_bytes", "received_bytes", "dense_bytes",
         "density", "round", "horizon", "fragment"]  # fmt: skip


def rows(run: Path) -> pd.DataFrame:
    found = pd.read_csv(run / "steps.csv").sort_values(["step", "rank"])
    return found.reset_index(drop=True)


def apart(ours: Path, theirs: Path) -> float:
    """The largest difference of two runs' weights."""
    one, other = weights(ours), weights(theirs)
    assert one.keys() == other.keys()
    return max(float((one[name].float() - other[name].float()).abs().max()) for name in one)


def status(run: Path) -> str:
    return json.loads((run / "status.json").read_text())["state"]


def test_a_round_of_one_plain_step_is_data_parallel_training(tmp_path):
    sgd = ("optimizer.kind=sgd", "optimizer.momentum=0", "workers=3")
    ours = simulated(tmp_path / "ours", *LOCAL, *PLAIN, "parallel.h=1", *sgd)
    theirs = simulated(tmp_path / "theirs", *RUN, *sgd)
    assert 0 < apart(ours, theirs) <= 1e-6 and status(ours) == "succeeded"


@pytest.mark.parametrize("h", [1, 3, 5])
def test_a_worker_alone_trains_as_if_there_were_no_rounds_bit_for_bit(h, tmp_path):
    """Weights at the end of a round: 15 steps are some of each."""
    asked = (*ADAMW, "workers=1", "steps=15", "optimizer.clip_norm=0.5")
    ours = simulated(tmp_path / "ours", *LOCAL, *PLAIN, f"parallel.h={h}", *asked)
    assert apart(ours, simulated(tmp_path / "theirs", *RUN, *asked)) == 0


def test_without_an_outer_optimizer_workers_take_the_mean_of_their_weights(tmp_path):
    """DiLoCo with learning rate 1 and no momentum, against a script that averages."""
    asked = (*SGD, "workers=2", "parallel.h=4")
    ours = simulated(tmp_path / "ours", *LOCAL, *PLAIN, *asked)
    nesterov = ("parallel.outer=nesterov", "parallel.outer_momentum=0", "parallel.outer_lr=1")
    assert apart(ours, simulated(tmp_path / "theirs", *LOCAL, *nesterov, *asked)) == 0
    expected = scripted((*LOCAL, *PLAIN, *asked), averaging)
    assert_close(weights(ours), expected)


def scripted(asked: tuple[str, ...], outer) -> dict[str, torch.Tensor]:
    """Local steps as a plain script: a model a worker, torch's optimizers, lists of tensors."""
    run = settings_of(*asked).run()
    torch.manual_seed(run.seed)
    first = run.model.build(run.dataset.shape, run.dataset.classes)
    models = [run.model.build(run.dataset.shape, run.dataset.classes) for _ in range(run.workers)]
    inner, h = run.optimizer, run.parallel.h
    for each in models:
        each.load_state_dict(first.state_dict())
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    more = {"betas": (inner.momentum, inner.beta_2)} if inner.kind == "adamw" else {}
    made = [kinds[inner.kind](each.parameters(), inner.lr, weight_decay=inner.weight_decay, **more)
            for each in models]  # fmt: skip
    train = run.dataset.train()
    data = [iter(Batches(train, run.batch_size, rank, run.workers, run.seed))
            for rank in range(run.workers)]  # fmt: skip
    state = outer(first, run.parallel)
    for step in range(run.steps):
        for model, optimizer, batches in zip(models, made, data, strict=True):
            inputs, labels = next(batches)
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        if (step + 1) % h == 0:
            state(models)
    return first.state_dict()


def tensors(*models):
    return zip(*(each.parameters() for each in models), strict=True)


def averaging(first, layout):
    @torch.no_grad()
    def together(models):
        for anchor, *theirs in tensors(first, *models):
            anchor.copy_(sum(theirs) / len(theirs))
            for each in theirs:
                each.copy_(anchor)

    return together


def nesterov(first, layout):
    outer = torch.optim.SGD(
        first.parameters(), layout.outer_lr, layout.outer_momentum, nesterov=True
    )

    @torch.no_grad()
    def together(models):
        for anchor, *theirs in tensors(first, *models):
            anchor.grad = anchor - sum(theirs) / len(theirs)
        outer.step()
        for model in models:
            model.load_state_dict(first.state_dict())

    return together


def assert_close(ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """To 1e-6 of a tensor's largest magnitude, or of 1: float32 tells no more of large ones."""
    for name, value in expected.items():
        within = 1e-6 * max(1.0, float(value.abs().max()))
        assert float((ours[name] - value).abs().max()) <= within, name


def test_ten_outer_steps_are_those_of_a_script_with_torchs_optimizers(tmp_path):
    usual = ("optimizer.kind=adamw", "optimizer.lr=0.001")  # DiLoCo's is 0.0004
    asked = (*LOCAL, *usual, "workers=2", "parallel.h=2", "steps=20")
    ours = simulated(tmp_path / "ours", *asked)
    assert rows(ours).sent_bytes.gt(0).sum() == 2 * 10
    assert_close(weights(ours), scripted(asked, nesterov))
    own = torch.load(ours / "checkpoint" / "rank1.pt", weights_only=True)["optimizer"]
    assert {float(each["step"]) for each in own["state"].values()} == {20.0}  # kept over rounds


def test_streaming_of_one_fragment_without_lag_and_blend_is_diloco_bit_for_bit(tmp_path):
    asked = (*ADAMW, "workers=2", "parallel.h=4")
    one = ("parallel.fragments=1", "parallel.lag=0", "parallel.blend=0")
    ours = simulated(tmp_path / "ours", *LOCAL, *one, "parallel.pattern=sequential", *asked)
    assert apart(ours, simulated(tmp_path / "theirs", *LOCAL, *asked)) == 0


@pytest.mark.parametrize("fragments", [1, 2, 4])
def test_a_round_sends_the_model_once_and_its_peak_rate_falls_as_fragments(fragments, tmp_path):
    """Of 8 layers alike, exchanged seconds apart over a link of 1 Gbit/s: a part in a second."""
    layers = ",".join(["256"] * 7)
    asked = ("model=mlp", f"model.hidden=[{layers}]", "dataset=synthetic", "dataset.channels=1",
             "dataset.size=16", "dataset.classes=256", "emulation.compute=replay",
             "profile.rate_mbit=1000", "workers=2", "parallel.h=64", "steps=128",
             "model.times={forward_s: 0.05, backward_s: 0.05, batch_size: 8}",
             f"parallel.fragments={fragments}", "network.alike=true")  # fmt: skip
    run = simulated(tmp_path / "run", *LOCAL, *asked)
    own = rows(run).query("rank == 0")
    dense = own.dense_bytes.sum() / 2
    assert own.sent_bytes.sum() / len(own) == pytest.approx(dense / 64)  # ring of 2: n a direction
    assert own.dense_bytes.gt(0).sum() == 2 * fragments
    peak = json.loads((run / "summary.json").read_text())["peak_mbit"]
    whole = dense * 8e-6  # Mbit of a model, all of them within a second
    assert peak * fragments == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize("name", RUNS)
def test_weights_do_not_depend_on_network_and_are_those_of_real_ranks(name, tmp_path):
    asked = ("workers=2", *RUNS[name])
    ours = simulated(tmp_path / "ours", *LOCAL, *asked, "profile.rate_mbit=1000")
    slow = simulated(tmp_path / "slow", *LOCAL, *asked, "profile=square")
    assert rows(slow).time_s.max() > rows(ours).time_s.max() and apart(ours, slow) == 0
    theirs = over_gloo(tmp_path / "theirs", *LOCAL, *asked)
    assert apart(ours, theirs) == 0 and status(ours) == "succeeded"
    pd.testing.assert_frame_equal(rows(ours)[EQUAL], rows(theirs)[EQUAL])
    told = [pd.read_csv(run / "evaluations.csv").value.tolist() for run in (ours, theirs)]
    assert told[0] == told[1]
    assert name != "gossip" or 0 < distances(ours)[-1] < 1


@pytest.mark.parametrize(("name", "stop"), RESUMED)
def test_it_goes_on_in_mid_round_as_if_it_had_not_stopped(name, stop, tmp_path):
    """And the inner optimizer's state with it; of streaming a fragment is under way."""
    asked = (*LOCAL, "workers=2", *RUNS[name], "eval_every=1")
    whole = simulated(tmp_path / "whole", *asked)
    begun = simulated(tmp_path / "begun", *asked, f"steps={stop}")
    went_on = simulated(tmp_path / "on", *asked, f"resume_from={begun}")
    assert apart(went_on, whole) == 0 and status(went_on) == "succeeded"
    last, expected = (rows(run).query(f"step >= {stop}") for run in (went_on, whole))
    pd.testing.assert_frame_equal(
        last[EQUAL].reset_index(drop=True), expected[EQUAL].reset_index(drop=True), check_exact=True
    )
    assert last.time_s.tolist() == pytest.approx(expected.time_s.tolist())


def test_all_time_of_a_rank_is_computing_compressing_or_exposed(tmp_path):
    asked = ("workers=2", *STREAMING, "profile.rate_mbit=1", "eval_every=6", "steps=18")
    run = simulated(tmp_path / "run", *LOCAL, *asked)
    for _, own in rows(run).groupby("rank"):
        told = own.compute_s + own.exposed_s
        assert told.sum() == pytest.approx(own.time_s.max()) and own.exposed_s.sum() > 0.1
        assert own.exposed_s.sum() < own.comm_s.sum()  # the lag hides some


def test_a_horizon_is_one_for_all_workers_and_follows_the_network(tmp_path):
    """Of 0.9 of the time computing, on a link that is slow half of the time, most is kept."""
    asked = ("workers=3", "controller=cu_target", "controller.agree=min", "parallel.h=2",
             "steps=600", "eval_every=600", "profile=square",
             "profile.high_mbit=20", "profile.low_mbit=2", "profile.period_s=12",
             "emulation.compute=replay")  # fmt: skip
    run = simulated(tmp_path / "run", *LOCAL, *asked)
    found = rows(run)
    assert found.groupby("step").horizon.nunique().eq(1).all()
    assert 2 * found.horizon.min() < found.horizon.max()
    assert json.loads((run / "summary.json").read_text())["compute_utilisation"] > 0.8


def test_pairs_take_the_published_step_and_their_distance_is_told(tmp_path):
    """Kolehmainen et al., 2025, with both means as printed, one pair and momentum over 3 rounds."""
    asked = (*LOCAL, *SGD, "workers=2", "parallel.h=4", "parallel.peers=pair",
             "parallel.outer=momentum", "parallel.outer_momentum=0.3")  # fmt: skip
    run = simulated(tmp_path / "run", *asked)
    assert_close(weights(run), scripted(asked, gossiping))
    assert distances(run) == [0, 0] and status(run) == "succeeded"  # two that meet every time
    sent = rows(run).query("sent_bytes > 0")
    assert len(sent) == 2 * 3 and sent.sent_bytes.eq(sent.dense_bytes).all()


def distances(run: Path) -> list[float]:
    told = pd.read_csv(run / "evaluations.csv").query("metric == 'replica_distance'")
    return told.value.tolist()


def gossiping(first, layout):
    olds: list[list[torch.Tensor]] = []
    momenta: list[list[torch.Tensor]] = []
    eta, mu = layout.outer_lr, layout.outer_momentum

    @torch.no_grad()
    def together(models):
        if not olds:
            olds.extend([each.clone() for each in first.parameters()] for _ in models)
            momenta.extend([torch.zeros_like(each) for each in first.parameters()] for _ in models)
        for number, theirs in enumerate(tensors(*models)):
            moved = sum(w - old[number] for w, old in zip(theirs, olds, strict=True)) / 2
            mean = sum(old[number] for old in olds) / 2
            for weights_of, old, momentum in zip(theirs, olds, momenta, strict=True):
                momentum[number].mul_(mu).add_(eta * moved + eta * (mean - old[number]))
                old[number].add_(momentum[number])
                weights_of.copy_(old[number])
        for anchor, old in zip(first.parameters(), olds[0], strict=True):
            anchor.copy_(old)

    return together


@pytest.mark.parametrize(
    ("asked", "density", "volume"),
    [
        (("method=topk", "controller.density=0.01", "parallel.h=6"), 0.01, None),
        (("method=sparseloco", "parallel.h=5"), None, None),
        (("method=localsgd", "parallel.h=4"), 1.0, 1 / 4),
        (("method=diloco", "parallel.h=4", "parallel.fragments=2"), 1.0, 1 / 4),
        (("method=topk", "controller.density=0.1", "parallel.h=11", "parallel.warmup_rounds=1"),
         0.55, None),
    ],
)  # fmt: skip
def test_a_density_is_that_of_what_was_sent(asked, density, volume, tmp_path):
    run = simulated(tmp_path / "run", *LOCAL, *asked)
    table = rows(run)
    sends = table.sent_bytes > 0
    assert (table.density.notna() == sends).all() and sends.any() and not sends.all()
    summary = json.loads((run / "summary.json").read_text())
    measured = table.achieved_density.fillna(table.density).mean()
    assert summary["mean_density"] == pytest.approx(measured)
    assert measured == pytest.approx(density, rel=0.05) if density else measured < 0.1
    if volume:
        assert metrics.volume_ratio(load.steps(run)) == pytest.approx(volume, rel=0.01)
