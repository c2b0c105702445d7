"""Settings of a parameter server, and what they go with."""

import pytest

from harness.config.settings import BadSetting
from tests.parameter_server.scenes import run_of

BAD = {
    "parallel.mode=both": "mode must be sync or async, got 'both'",
    "parallel.threads=0": "threads must be a whole number >= 1, got 0",
    "parallel.drain_period=0.5": "drain_period must be a number >= 1, or null, got 0.5",
}


@pytest.mark.parametrize("override", BAD)
def test_a_value_out_of_range_is_refused_by_name(override):
    with pytest.raises(BadSetting, match=BAD[override]):
        run_of("parallel=server", "model=mlp_as_resnet20", override)


def test_the_server_has_a_node_of_its_own_behind_the_workers():
    assert run_of("parallel=server", "workers=3").nodes == 4
    assert run_of("workers=3").nodes == 3
    with pytest.raises(BadSetting, match="rate_mbit must have a rate for node 2"):
        run_of("parallel=server", "workers=2", "profile.rate_mbit=[10,20]")
