"""What sets comparisons of one report apart, in the words of its titles and sentences."""

import pandas as pd

from harness.reporting.analysis.comparison import Comparison, differences


def of(simulated: bool, **conditions: object) -> Comparison:
    """A comparison of one run; nothing but its settings matters here."""
    keys = {key.replace("__", "."): value for key, value in conditions.items()}
    runs = pd.DataFrame({"conditions": [keys], "simulated": [simulated]})
    return Comparison(*[None] * len(Comparison._fields))._replace(runs=runs)  # type: ignore[arg-type]


PACKETS = of(False, workers=4, network__probe_s=0.5)
VIRTUAL = of(True, workers=4, network__alpha_s=1e-5)
SLOWER = of(True, workers=4, network__alpha_s=1e-3)
MORE = of(True, workers=8, network__alpha_s=1e-5)


def test_networks_of_two_kinds_are_set_apart_by_the_kind_alone():
    assert differences(PACKETS, [PACKETS, VIRTUAL]) == ["over packets"]
    assert differences(VIRTUAL, [PACKETS, VIRTUAL]) == ["in virtual time"]


def test_networks_of_one_kind_are_set_apart_by_their_keys():
    assert differences(SLOWER, [VIRTUAL, SLOWER]) == ["network.alpha_s 0.001"]
    told = differences(VIRTUAL, [PACKETS, VIRTUAL, SLOWER])
    assert told == ["in virtual time", "network.alpha_s 1e-05"]


def test_what_else_differs_is_told_of_both_kinds():
    assert differences(PACKETS, [PACKETS, MORE]) == ["over packets", "workers 4"]
