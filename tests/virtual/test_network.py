"""What the choice of virtual time tells its cost model, and a dumbbell in virtual time."""

import pandas as pd
import pytest

from harness.config.scales import composed
from harness.config.settings import BadSetting
from harness.emulation.packets import LARGEST_BYTES
from harness.emulation.star import Star
from harness.emulation.topology import PACKET_S
from harness.reporting.figures import layout, link_load
from harness.validation import checked
from harness.virtual.network import Simulated
from harness.virtual.run import simulate
from profiles.static import Static
from tests.virtual.runs import prepare

TOLD = {"alpha_s": 0.001, "operation_s": 0.002, "wake_s": 0.003}


def handled(nodes: int, dilation: float = 1.0, **told) -> list[float]:
    """Multiples of what was told."""
    costs = Simulated(**TOLD, **told).costs(Static(rate_mbit=8.0), nodes, 1, dilation)
    return [getattr(costs, name) / value for name, value in TOLD.items()]


@pytest.mark.parametrize(("nodes", "cpu_oversubscription"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_ranks_that_share_cores_handle_messages_together(nodes, cpu_oversubscription):
    assert handled(nodes, cores=2) == pytest.approx([cpu_oversubscription, 1, 1])
    assert handled(nodes) == pytest.approx([1, 1, 1])
    profile = Static(rate_mbit=8.0)
    assert Simulated(cores=2).costs(profile, nodes, 1).cpu_oversubscription == cpu_oversubscription
    assert Simulated().costs(profile, nodes, 1).cpu_oversubscription == 1


def test_seconds_of_a_machine_are_divided_by_the_dilation():
    assert handled(4, 8.0, real_seconds=True) == pytest.approx([1 / 8] * 3)
    assert handled(4, 8.0) == pytest.approx([1] * 3)


@pytest.mark.parametrize("rate_mbit", [3, 50, 400, 10_000])
@pytest.mark.parametrize("dilation", [1.0, 8.0])
def test_packets_are_as_long_as_those_of_real_nodes(rate_mbit, dilation):
    told = {"packet_s": PACKET_S, "real_seconds": True}
    profile = Static(rate_mbit=rate_mbit)
    real = Star().packet_bytes(profile, dilation) or LARGEST_BYTES
    payload = Simulated(**told).costs(profile, 2, 1, dilation).packet_bytes
    assert payload % 1448 == 0 and payload > 0
    assert payload <= real < payload + 2 * 1500
    assert Simulated().costs(profile, 2, 1, dilation).packet_bytes == 0


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
