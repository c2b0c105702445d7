"""A stand-in meets an exchange as its original does: buckets, tensors, and when they are ready."""

import pytest
import torch

from harness.config.run import Run
from harness.config.search_path import choices
from harness.predict import plan
from harness.reporting.analysis import load
from harness.validation import checked
from harness.virtual.run import simulate
from harness.workloads.buckets import bucket_names
from harness.workloads.models.base import backward_shares
from harness.workloads.models.stand_in import SIDE, runs
from tests.test_settings import settings
from tests.virtual.runs import DETERMINED, over_gloo, prepare, simulated, weights

WORKLOADS = [
    name.removesuffix("_laptop")
    for name in choices("workload")
    if name.endswith("_laptop") and name.replace("_laptop", "_paper") in choices("workload")
]
ALONE = ("dct_dlrm", "dct_translation")  # of one worker: no gradient is exchanged
STAND_INS = [name for name in WORKLOADS if name not in ALONE]
MODELS = [name for name in choices("model") if "_as_" in name]
OF_TEXT = {"bert_as_bert_cn": "covap_bert_text", "gpt_as_gpt2": "covap_gpt2_text"}  # workloads
DATA = dict.fromkeys(OF_TEXT, "pydoc") | {
    "bert_as_bert_cn": "passages",
    "lstm_as_lstm_ptb": "pydoc",
}
REPLAYED = ("network=simulated", "emulation.compute=replay", "network.alike=true")


def replayed(workload: str, scale: str, *more: str) -> Run:
    return checked(settings(f"workload={workload}_{scale}", *REPLAYED, "steps=3", *more))


def laid_out(found: Run) -> tuple[dict[str, int], list[tuple[str, ...]]]:
    """Elements of every tensor, and the buckets."""
    sizes = {name: tensor.numel() for name, tensor in found.shapes().named_parameters()}
    return sizes, bucket_names(sizes, found.bucket_mb)


def test_a_workload_without_a_stand_in_has_one_worker():
    for name in ALONE:
        assert {settings(f"workload={name}_{s}")["workers"] for s in ("laptop", "paper")} == {1}


@pytest.mark.parametrize("workload", STAND_INS)
def test_buckets_and_the_largest_tensor_are_the_originals_in_proportion(workload):
    own, original = (laid_out(replayed(workload, scale)) for scale in ("laptop", "paper"))
    parts = []
    for sizes, buckets in (own, original):
        whole = sum(sizes.values())
        of_buckets = [sum(sizes[name] for name in names) / whole for names in buckets]
        parts.append([max(sizes.values()) / whole, max(of_buckets), *of_buckets])
    assert len(own[1]) == len(original[1]) > 1
    assert parts[0] == pytest.approx(parts[1], rel=0.1, abs=0.002)


@pytest.mark.parametrize("workload", STAND_INS)
def test_as_much_of_a_step_as_of_the_originals_is_over_before_anything_is_sent(workload):
    shares = []
    for scale in ("laptop", "paper"):
        took = plan.predict(replayed(workload, scale))
        shares.append(took.compute_before_first_bucket_s / took.compute_s)
    assert shares[0] == pytest.approx(shares[1], abs=0.1)
    assert shares[0] < 0.99


@pytest.mark.parametrize("name", OF_TEXT)
def test_of_text_buckets_are_as_many_and_the_largest_tensor_is_about_as_large(name):
    found = settings(f"workload={OF_TEXT[name]}").run()
    sizes, buckets = laid_out(found)
    original = found.model.original
    assert len(buckets) == len(bucket_names(original.sizes, None))
    share = max(sizes.values()) / sum(sizes.values())
    assert share == pytest.approx(
        max(original.sizes.values()) / sum(original.sizes.values()), rel=0.03
    )
    assert 100_000 < sum(sizes.values()) < 250_000


@pytest.mark.parametrize("bucket_mb", ["null", "20"])
def test_ddp_lays_out_the_buckets_that_virtual_time_does(bucket_mb, tmp_path):
    """Which entries are the largest of a bucket depends on it: so do the weights."""
    asked = ("model=mlp_as_resnet50", f"bucket_mb={bucket_mb}", "workers=2", "steps=4")
    asked += ("compressor=topk", "controller.density=0.1", "error_feedback=true")
    real = over_gloo(tmp_path / "real", *asked)
    virtual = simulated(tmp_path / "virtual", *asked, *DETERMINED)
    for name, value in weights(real).items():
        assert torch.equal(value, weights(virtual)[name]), name


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("bucket_mb", ["5", "60", "0.01"])
def test_buckets_of_any_size_are_scaled(name, bucket_mb):
    data = DATA.get(name, "digits")
    found = settings(f"model={name}", f"dataset={data}", f"bucket_mb={bucket_mb}").run()
    model = found.model
    scale = sum(laid_out(found)[0].values()) / sum(model.original.sizes.values())
    assert found.bucket_mb == pytest.approx(float(bucket_mb) * scale, rel=0.005)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in DATA])
def test_no_run_is_of_two_buckets_and_all_are_the_whole(name):
    model = settings(f"model={name}", "dataset=digits").build("model")
    found, original = runs(model.original), model.original
    assert sum(run.elements for run in found) == sum(original.sizes.values())
    assert sum(run.share for run in found) == pytest.approx(1)
    assert sum(run.closes for run in found) == len(bucket_names(original.sizes, None))
    assert len(found) < len(original.sizes)


@pytest.mark.parametrize("shape", [(1, SIDE, SIDE), (3, 32, 32), (2, 5, 9)])
def test_images_of_any_shape_are_taken_by_as_many_weights(shape):
    model = settings("model=mlp_as_resnet50", "dataset=digits").build("model")
    network = model.build(shape, 7)
    assert network(torch.zeros(2, *shape)).shape == (2, 7)
    shares = backward_shares(network, shape)
    count = sum(tensor.numel() for tensor in network.parameters())
    assert count == pytest.approx(model.parameters, rel=0.01)
    assert list(shares) == [name for name, _ in network.named_parameters()]


@pytest.mark.parametrize(("override", "said"), [
    ("model.parameters=0", r"parameters must be a number in \[1, 1e\+11\], got 0"),
    ("model.batch_size=0", "batch_size must be >= 1, got 0"),
    ("model.original.batch_size=0", "batch_size must be >= 1, got 0"),
    ("model.original.model.depth=9", "depth must be one of"),
])  # fmt: skip
def test_what_a_stand_in_cannot_be(override, said):
    with pytest.raises(ValueError, match=said):
        settings("model=mlp_as_resnet50", override).build("model")


@pytest.mark.parametrize("workload", ["dc2_imagenet", "netsense_resnet18", "netsense_vgg16"])
def test_covap_sends_about_a_part_of_the_bytes_in_every_step(workload, tmp_path):
    """Its units are buckets: of the one that a stand-in was, all went in one step of four."""
    asked = (f"workload={workload}_laptop", "network=simulated", "steps=9", "eval_every=9")
    asked += ("compressor=covap", "error_feedback=true", "controller.density=0.25")
    found = settings(*asked, *DETERMINED, "report=false")
    run = checked(found)
    prepare(tmp_path, found)
    simulate(tmp_path, run, lambda: None)
    sizes, _ = laid_out(run)
    workers = found["workers"]
    dense_bytes = 4 * sum(sizes.values()) * 2 * (workers - 1) / workers
    sent = load.steps(tmp_path).groupby("step").sent_bytes.mean() / dense_bytes
    cycle = sent.iloc[1:]  # the first learns what buckets there are
    assert list(cycle.rolling(4).mean().dropna()) == pytest.approx([0.25] * 5, rel=0.01)
    assert cycle.between(0.25 / 2, 0.25 * 1.5).all()
