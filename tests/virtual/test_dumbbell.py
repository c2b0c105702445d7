"""A run over a simulated dumbbell: its trunk is recorded and drawn as a real one's."""

import pandas as pd
import pytest

from harness.config.scales import composed
from harness.config.settings import BadSetting
from harness.reporting.figures import layout, link_load
from harness.validation import checked
from harness.virtual.run import simulate
from tests.virtual.runs import prepare

ASKED = ("network=simulated_dumbbell", "model.width=8", "report=false", "workers=4", "steps=6")
ASKED += ("emulation.compute=replay", "network.compress_scale=0", "network.sample_s=0.02")


def settings_of(*overrides):
    settings, _ = composed([*ASKED, *overrides])
    checked(settings)
    return settings


def test_its_records_are_those_of_a_dumbbell(tmp_path):
    settings = settings_of("network.left=1", "profile=contended", "profile.on_s=0.1")
    prepare(tmp_path / "run", settings)
    simulate(tmp_path / "run", settings.run(), lambda: None)
    links, steps = (pd.read_csv(tmp_path / "run" / f"{name}.csv") for name in ("links", "steps"))
    assert set(links.link) == {"trunk_up", "trunk_down"}
    sent = steps[steps["rank"] == 0].sent_bytes.sum() / 0.956
    for _, rows in links.groupby("link"):
        assert 0.5 * sent < rows["bytes"].iloc[-1] <= sent  # one hop of the ring each way
    found = layout.read(tmp_path / "run")
    assert found is not None and found.left == 1 and set(found.flows) == {"trunk_up", "trunk_down"}
    assert link_load.competing(tmp_path / "run", float(steps.time_s.max()))


@pytest.mark.parametrize(("asked", "said"), [
    (("network.left=4",), r"left must be a whole number in \[1, 3\], got 4"),
    (("workers=1",), "a dumbbell needs at least 2 nodes, got 1"),
    (("network.access=3",), "access must be a profile"),
])  # fmt: skip
def test_what_is_no_dumbbell_is_refused(asked, said):
    with pytest.raises(BadSetting, match=said):
        settings_of(*asked)
