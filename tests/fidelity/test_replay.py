"""The closed form against a run in virtual time: the same steps from the same constants."""

from functools import partial

import pytest

from harness.analysis import load
from harness.fidelity import iterations
from harness.fidelity.fabric import Fabric
from harness.fidelity.iterations import Job
from harness.fidelity.layers import Tensor
from harness.fidelity.testbed import Compute
from harness.models.base import multiply_adds
from harness.models.convnet import ConvNet
from tests.simulate.runs import simulated

MB = 0.02  # of a bucket
ASKED = ("steps=9", "workers=4", f"bucket_mb={MB}", "batch_size=16", "emulation.compute=replay")
NETWORK = ("alpha_s=0.001", "operation_s=0", "efficiency=0.9", "compress_ns=0")
FABRIC = Fabric(workers=4, per_node=1, rate_mbit=40, efficiency=0.9, alpha_s=0.001)


@pytest.mark.parametrize(
    ("method", "overlap", "form"),
    [
        ("allreduce", "per_bucket", partial(iterations.dense, bucket_mb=MB)),
        (
            "allreduce",
            "after_backward",
            partial(iterations.dense, bucket_mb=MB, overlap="after_backward"),
        ),
        ("covap_0.25", "per_bucket", partial(iterations.covap, interval=4, bucket_mb=MB)),
    ],
)
def test_steps_take_what_a_replay_of_them_takes(tmp_path, method, overlap, form):
    told = (f"method={method}", f"overlap={overlap}", "profile.rate_mbit=40")
    run = simulated(tmp_path / "run", *ASKED, *told, *(f"network.{each}" for each in NETWORK))
    ends_s = load.steps(run).groupby("step").time_s.max()

    network = ConvNet("convnet", width=8).build((1, 8, 8), 10)
    counts = multiply_adds(network, (1, 8, 8))
    known = tuple(Tensor(n, tuple(p.shape), counts[n]) for n, p in network.named_parameters())
    job = Job(known, Compute(0.02, 0.04, 16), FABRIC)
    # of COVAP the last four steps are one turn of every unit
    assert (ends_s[8] - ends_s[4]) / 4 == pytest.approx(form(job).total_s, rel=1e-6)
