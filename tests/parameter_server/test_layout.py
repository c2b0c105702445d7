"""Settings of a parameter server, and what they go with."""

import pytest

from harness.config.settings import BadSetting
from tests.parameter_server.scenes import run_of

BAD = {
    "parallel.mode=both": "mode must be sync or async, got 'both'",
    "parallel.drain=away": "drain must be zero or flush, got 'away'",
    "parallel.threads=0": "threads must be a whole number >= 1, got 0",
    "parallel.threads=2": "threads must be 1 with mode=sync, got 2",
    "parallel.staleness_bound=1": "staleness_bound must be null with mode=sync, got 1",
    "parallel.drain_period=0.5": "drain_period must be a number >= 1, or null, got 0.5",
    "parallel.drain_period=10": "drain_period must be null with parallel=server, which keeps",
    "parallel.consistent_pull=3": "consistent_pull must be true or false, got 3",
    "compressor=powersgd": "compressor must be one that sends each worker's gradient by itself .* "
                           "no second message after the mean of the first, got PowerSGD",
    "activations=dct_mp": "activations must be dense with parallel=server, whose trainers have the "
                          "whole model: the server's weights have one version",
    "overlap=per_tensor": "overlap must be per_bucket, its default, with parallel=server",
    "emulation.hooks=wait": "emulation.hooks must be null with parallel=server",
    "parallel.drain=flush": "parallel.drain must be zero with parallel=server, which drains",
    "workers_per_node=2": "workers_per_node must be 1 with parallel=server, whose",
    "emulation.compute=replay": "emulation.compute must be measured or paced",
}  # fmt: skip


@pytest.mark.parametrize("override", BAD)
def test_what_does_not_go_together_is_refused_by_name(override):
    with pytest.raises(BadSetting, match=BAD[override]):
        run_of("parallel=server", "model=mlp_as_resnet20", override)


def test_the_server_has_a_node_of_its_own_behind_the_workers():
    assert run_of("parallel=server", "workers=3").nodes == 4
    assert run_of("workers=3").nodes == 3
    with pytest.raises(BadSetting, match="rate_mbit must have a rate for node 2"):
        run_of("parallel=server", "workers=2", "profile.rate_mbit=[10,20]")
