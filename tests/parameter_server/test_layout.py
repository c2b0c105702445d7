"""Settings of a parameter server, and what they go with."""

import pytest

from harness import nodes
from harness.settings import BadSetting
from tests.parameter_server.scenes import settings

BAD = {
    "parallel.mode=both": "mode must be sync or async, got 'both'",
    "parallel.drain=away": "drain must be zero or flush, got 'away'",
    "parallel.threads=0": "threads must be a whole number >= 1, got 0",
    "parallel.threads=2": "threads must be 1 with mode=sync, got 2",
    "parallel.staleness_bound=1": "staleness_bound must be null with mode=sync, got 1",
    "parallel.drain_period=0.5": "drain_period must be a number >= 1, or null, got 0.5",
    "parallel.drain_period=10": "drain_period must be null without error_feedback",
    "parallel.consistent_pull=3": "consistent_pull must be true or false, got 3",
    "network=simulated": "network must have packets",
    "compressor=qsgd": "compressor must be of Dense, DCTDP, TopK with parallel=server, got QSGD",
    "workers_per_node=2": "workers_per_node must be 1 with parallel=server, got 2",
    "emulation.compute=replay": "emulation.compute must be measured or paced",
}


@pytest.mark.parametrize("override", BAD)
def test_what_does_not_go_together_is_refused_by_name(override):
    with pytest.raises(BadSetting, match=BAD[override]):
        settings("parallel=server", "model=convnet_as_resnet20", override)


def test_the_server_has_a_node_of_its_own_behind_the_workers():
    assert nodes.count(settings("parallel=server", "workers=3")) == 4
    assert nodes.count(settings("workers=3")) == 3
    with pytest.raises(BadSetting, match="rate_mbit must have a rate for node 2"):
        settings("parallel=server", "workers=2", "profile.rate_mbit=[10,20]")
