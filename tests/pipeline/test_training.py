"""A pipeline trains what one process trains whose model has the cuts as operators: bit for bit."""

from math import ceil

import pandas as pd
import pytest
import torch

from harness.engine.pipeline.operators import cut_in_place
from harness.engine.training.task import Task
from harness.workloads.data.digits import Digits
from tests.pipeline.training import Trained, train

PIPELINES, PARTS, BATCH = 2, 4, 6
HYBRID = ("method=dct_dp", "controller.density=0.1", "compressor.lifespan=4")
SCHEMES = {
    "dense": ("activations=dense",),
    "exact": ("activations=dct_mp",),
    "hybrid": ("activations=dct_mp", *HYBRID),
    "laplace": ("activations=dct_mp_laplace", "activations.memory=0.5", *HYBRID),
    "sketch": ("activations=sketch", "steps=3"),
    "once": ("activations=sketch", "activations.fresh=false", "steps=3"),
    "topk_grad": ("activations=topk_grad", "steps=3"),
    "everything": ("activations=dct_mp", "activations.density=1"),
    "residual": ("activations=dct_mp", "model=resnet20", "model.depth=8", "steps=2"),
    "clipped": ("activations=dct_mp", "optimizer.clip_norm=0.1"),
}  # fmt: skip
GPIPE, ONE_F_ONE_B = "parallel.schedule=gpipe", "parallel.schedule=1f1b"


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> dict[str, Trained]:
    """With the cuts of 2 and of 3 stages as operators, and without cuts."""
    runs = {"uncut": ("parallel=data",)}
    for name, scheme in SCHEMES.items():
        runs[f"2 {name}"] = ("parallel=split", "parallel.stages=2", *scheme)
    for name in ("exact", "hybrid", "laplace", "clipped"):
        runs[f"3 {name}"] = ("parallel=split", "parallel.stages=3", *SCHEMES[name])
    return train(tmp_path_factory.mktemp("one"), PIPELINES, runs)


@pytest.fixture(scope="module")
def two_stages(tmp_path_factory) -> dict[str, Trained]:
    folder = tmp_path_factory.mktemp("two")
    runs = {f"{name} gpipe": ("parallel=pipeline", GPIPE, *SCHEMES[name])
            for name in ("exact", "hybrid")}  # fmt: skip
    runs |= {f"{name} 1f1b": ("parallel=pipeline", ONE_F_ONE_B, *scheme)
             for name, scheme in SCHEMES.items()}  # fmt: skip
    runs["begun"] = (*runs["laplace 1f1b"], "steps=5")
    runs["gone on"] = (*runs["laplace 1f1b"], f"resume_from={folder / 'begun'}")
    return train(folder, 2 * PIPELINES, runs)


@pytest.fixture(scope="module")
def three_stages(tmp_path_factory) -> dict[str, Trained]:
    three = ("parallel=pipeline", "parallel.stages=3")
    runs = {
        "exact gpipe": (*three, GPIPE, *SCHEMES["exact"]),
        "hybrid gpipe": (*three, GPIPE, *SCHEMES["hybrid"]),
        "hybrid 1f1b": (*three, ONE_F_ONE_B, *SCHEMES["hybrid"]),
        "laplace 1f1b": (*three, ONE_F_ONE_B, *SCHEMES["laplace"]),
        "clipped 1f1b": (*three, ONE_F_ONE_B, *SCHEMES["clipped"]),
    }
    return train(tmp_path_factory.mktemp("three"), 3 * PIPELINES, runs)


def require_equal(one: Trained, other: Trained) -> None:
    assert one.weights.keys() == other.weights.keys()
    for name, value in one.weights.items():
        assert torch.equal(value, other.weights[name]), name
    assert not any(one.drifted + other.drifted)


def test_two_stages_are_one_process_bit_for_bit(one_process, two_stages) -> None:
    for name, trained in two_stages.items():
        if name not in ("begun", "gone on"):
            require_equal(one_process[f"2 {name.split()[0]}"], trained)
            evaluated = one_process[f"2 {name.split()[0]}"].evaluations
            assert trained.evaluations.value.tolist() == evaluated.value.tolist()


def test_three_stages_are_one_process_bit_for_bit(one_process, three_stages) -> None:
    for name, trained in three_stages.items():
        require_equal(one_process[f"3 {name.split()[0]}"], trained)


def test_the_schemes_train_different_models(one_process) -> None:
    """Or the equalities above would say nothing."""
    others = ("2 dense", "2 everything", "2 residual")
    mlps = {name: each.weights["1.weight"] for name, each in one_process.items()
            if name not in others}  # fmt: skip
    assert len({tuple(weights.flatten().tolist()) for weights in mlps.values()}) == len(mlps)


def test_at_density_1_it_is_dense_training(one_process, two_stages) -> None:
    require_equal(one_process["uncut"], two_stages["everything 1f1b"])
    require_equal(one_process["uncut"], two_stages["dense 1f1b"])


def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(two_stages) -> None:
    """Averages of thresholds, residuals and kept thresholds included."""
    require_equal(two_stages["laplace 1f1b"], two_stages["gone on"])
    assert two_stages["gone on"].steps.step.min() == 5


def stages(trained: Trained, count: int) -> list[pd.DataFrame]:
    """Rows of the first pipeline's stages, by step."""
    rows = trained.steps.sort_values("step")
    return [rows[rows["rank"] == stage].reset_index() for stage in range(count)]


@pytest.mark.parametrize("name", ["exact gpipe", "exact 1f1b", "laplace 1f1b"])
def test_bytes_are_those_of_the_formula(name: str, two_stages) -> None:
    """4 nnz + ceil(B d / 8) forward and 4 nnz backward, of every micro-batch."""
    before, after = stages(two_stages[name], 2)
    d = before.dense_activation_bytes // (4 * PARTS * BATCH)
    nnz = (before.achieved_activation_density * PARTS * BATCH * d).round()
    assert (before.activation_bytes == 4 * nnz + PARTS * (BATCH * d / 8).apply(ceil)).all()
    assert (after.activation_bytes == 4 * nnz).all()
    for one, other in ((before, after), (after, before)):
        exchanged = one.sent_bytes - one.activation_bytes
        if "exact" in name:  # dense: as much is received as sent
            assert (one.received_bytes - exchanged == other.activation_bytes).all()
    if "exact" in name:
        assert (before.achieved_activation_density <= 5 / 48 + 1e-9).all()  # a tenth of 48, and one


def test_one_stage_of_a_pipeline_counts_its_samples_and_knows_its_loss(two_stages) -> None:
    first, last = stages(two_stages["exact 1f1b"], 2)
    assert (first.samples == 0).all() and first.loss.isna().all()
    assert (last.samples == PARTS * BATCH).all() and last.loss.notna().all()


def test_the_time_of_a_stage_is_computation_or_waiting(two_stages) -> None:
    for rows in stages(two_stages["exact 1f1b"], 2):
        took = rows.time_s.diff()
        assert (rows.compute_s > 0).all() and (rows.exposed_s > 0).all()
        assert (rows.compute_s + rows.exposed_s)[1:].le(took[1:] + 1e-3).all()


def test_what_was_sent_of_gradients_is_recorded(one_process, two_stages) -> None:
    """At least density at the first step, and the same by a pipeline's stages together."""
    first, last = stages(two_stages["hybrid 1f1b"], 2)
    whole, _ = stages(one_process["2 hybrid"], 2)
    entries = first.dense_bytes + last.dense_bytes
    mean = (
        first.achieved_density * first.dense_bytes + last.achieved_density * last.dense_bytes
    ) / entries
    assert whole.achieved_density.tolist() == pytest.approx(mean.tolist())
    assert whole.achieved_density[0] == pytest.approx(0.1, abs=0.02)
    assert two_stages["exact 1f1b"].steps.achieved_density.isna().all()


@pytest.mark.parametrize("name", ["exact 1f1b", "once 1f1b"])
def test_what_is_evaluated_has_its_cuts(name: str, two_stages) -> None:
    """The loss that was reported is that of the model with operators, not of that without."""
    trained, data = two_stages[name], Digits()
    run = trained.settings.run()
    model = run.model.build(data.shape, data.classes)
    model.load_state_dict(trained.weights)
    model.eval()
    inputs, labels = next(data.test().stream([(torch.arange(len(data.test())), (2, 0))]))
    task, reported = Task("accuracy", torch.device("cpu")), trained.evaluations
    loss = reported[reported.metric == "loss"].value.iloc[-1]
    with torch.no_grad():
        without = task.loss(model(inputs), labels).item()
        cut_in_place(run, model, data.shape)
        assert loss == pytest.approx(task.loss(model(inputs), labels).item(), rel=1e-5)
    assert loss != pytest.approx(without, rel=1e-3)
