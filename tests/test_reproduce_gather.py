"""The tables of a paper: settings that differ are told apart."""

import pandas as pd

from harness.reproduce.gather import _conditions

RATES = ({"profile.rate_mbit": 5.0}, {"profile.rate_mbit": 8.0})
COST = "network.device.costs.topk.element_ns"
DEVICES = (
    {"network.device.name": "A40", COST: 0.2},
    {"network.device.name": "A40, slower", COST: 3.0},
)


def told(*conditions: dict[str, object], world: str = "virtual") -> list[str]:
    rows = {"experiment": "some", "model": "net", "world": world, "conditions": conditions}
    return list(_conditions(pd.DataFrame(rows)))


def test_a_setting_is_told_by_its_rate_and_by_the_name_of_its_device():
    settings = [rate | device for rate in RATES for device in DEVICES]
    assert told(*settings) == [
        "rate_mbit 5, device A40",
        "rate_mbit 5, device A40, slower",
        "rate_mbit 8, device A40",
        "rate_mbit 8, device A40, slower",
    ]


def test_what_all_share_is_not_told_nor_that_packets_have_another_network():
    assert told(*RATES) == ["rate_mbit 5", "rate_mbit 8"]
    noisy = [{"network.exchange_noise": noise} for noise in (0.01, 0.3)]
    assert told(*noisy) == ["exchange_noise 0.01", "exchange_noise 0.3"]
    worlds = ["packets", "virtual"]
    assert told(*noisy, world=worlds) == ["", ""]  # type: ignore[arg-type]
