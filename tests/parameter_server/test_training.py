"""A server and its trainers as they are put together: what they compute, and going on."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from harness.config.run import Run
from harness.engine.training.task import Task
from harness.records import checkpoint
from harness.workloads.data.loader import Batches
from tests.parameter_server.scenes import run_of, train

TINY = ("parallel=server", "model=mlp", "steps=6", "eval_every=3", "workers=1")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoint" / "model.pt", weights_only=True)["model"]


def plain_sgd(found: Run) -> dict[str, torch.Tensor]:
    """By hand, in one process: the mean of what all workers' batches give."""
    torch.set_num_threads(1)
    data, options = found.dataset, found.optimizer
    torch.manual_seed(found.seed)
    model = found.model.build(data.shape, data.classes)
    task = Task("accuracy", torch.device("cpu"))
    optimizer = torch.optim.SGD(
        model.parameters(), options.lr, options.momentum, weight_decay=options.weight_decay
    )
    own, workers = (data.train(), found.batch_size), found.workers
    streams = [iter(Batches(*own, rank, workers, found.seed)) for rank in range(workers)]
    for _ in range(found.steps):
        optimizer.zero_grad()
        sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for stream in streams:
            inputs, labels = next(stream)
            model.zero_grad()
            task.loss(task.scores(model, inputs), labels).backward()
            for total, parameter in zip(sums, model.parameters(), strict=True):
                total += parameter.grad
        for total, parameter in zip(sums, model.parameters(), strict=True):
            parameter.grad = total / len(streams) if len(streams) > 1 else total
        optimizer.step()
    return model.state_dict()


def same(one: dict, other: dict) -> bool:
    return all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_one_trainer_that_sends_everything_is_plain_sgd_bit_for_bit(mode, tmp_path):
    found = run_of(*TINY, f"parallel.mode={mode}")
    run = train(tmp_path / "run", found)
    assert same(weights(run), plain_sgd(found))
    assert (pd.read_csv(run / "pushes.csv").staleness == 0).all()


def test_two_synchronous_trainers_are_sgd_of_the_mean_bit_for_bit(tmp_path):
    found = run_of(*TINY, "workers=2")
    assert same(weights(train(tmp_path / "run", found)), plain_sgd(found))


def test_a_sparse_push_of_all_entries_is_plain_sgd_too(tmp_path):
    found = run_of(*TINY, "compressor=dct_dp", "error_feedback=true", "compressor.lifespan=1")
    assert same(weights(train(tmp_path / "run", found)), plain_sgd(found))


def test_what_is_written_is_what_metrics_read(tmp_path):
    found = run_of(*TINY, "workers=2", "method=dct_ps_async", "parallel.threads=2", "steps=8")
    run = train(tmp_path / "run", found)
    steps, pushes = pd.read_csv(run / "steps.csv"), pd.read_csv(run / "pushes.csv")
    evaluations = pd.read_csv(run / "evaluations.csv")
    every = {(rank, step) for rank in range(2) for step in range(8)}
    for table in (steps, pushes):
        assert sorted(zip(table["rank"], table.step, strict=True)) == sorted(every)
    assert sorted(pushes.version) == list(range(16))
    assert (pushes.staleness == pushes.version - pushes.pulled_version).all()
    # headers aside, 8 bytes for each entry up, and 4 for each weight down
    both = steps.merge(pushes, on=["rank", "step"])
    assert (both.sent_bytes_x - 8 * both.entries).between(64, 512).all()
    assert (both.received_bytes_x - both.dense_bytes).between(64, 512).all()
    assert set(evaluations.metric) == {"accuracy", "loss"} and evaluations.step.max() == 8


@pytest.mark.parametrize("method", ["dct_ps", "dct_ps_async"])
def test_a_server_goes_on_from_its_checkpoint_bit_for_bit(method, tmp_path):
    """With one trainer, so that nothing depends on who comes first; residual and all."""
    base = (*TINY, f"method={method}", "compressor.lifespan=4", "parallel.drain_period=20")
    whole = train(tmp_path / "whole", run_of(*base))
    half = train(tmp_path / "half", run_of(*base, "steps=3"))
    rest = train(tmp_path / "rest", run_of(*base, f"resume_from={half}"))
    assert same(weights(rest), weights(whole))
    assert list(pd.read_csv(rest / "pushes.csv").step) == [3, 4, 5]
    own = checkpoint.load(rest / "checkpoint", "rank1.pt", torch.device("cpu"))
    assert own["version"] == 6 and own["pushed"].tolist() == [6]


@pytest.mark.parametrize(
    "method", ["parallel=server parallel.mode=async optimizer.momentum=0", "method=dct_ps_async"]
)
def test_the_asynchronous_methods_train_the_default_model(method, tmp_path):
    """Each push is a step of its own, of old weights: momentum would be there twice."""
    paced = ("emulation.compute=paced", "emulation.dilation=0.5")
    found = run_of(*method.split(), "workers=3", "steps=120", "eval_every=60", *paced)
    rows = pd.read_csv(train(tmp_path / "run", found) / "evaluations.csv")
    assert rows[rows.metric == "accuracy"].value.max() > 0.8
