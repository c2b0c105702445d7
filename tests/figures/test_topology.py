"""A drawing of a network says what the records say, and nothing in it overlaps."""

import itertools
import sys

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

from harness.reporting.figures import layout, topology
from harness.reporting.figures.layout import ConditionRanges, NetworkLayout, Range
from tests import records_by_hand as by_hand

ALONE = ConditionRanges(Range(20, 312), Range(0, 0), Range(0, 0), Range(0, 0))
BUSY = ConditionRanges(Range(20.5, 12500), Range(5, 200), Range(1, 20), Range(0.01, 0.05))
CLEAR = ALONE._replace(rate_mbit=Range(5, 5))
FLOWS = {"trunk_up": 4, "trunk_down": 4}
MATRIX = [[0.5, 40.0], [110.0, 0.5]]


def network(nodes, left=None, up=ALONE, down=ALONE, trunk=None, **other) -> NetworkLayout:
    found = {f"{way}{node}": each for node in range(nodes) for way, each in
             (("up", up), ("down", down)) if each}  # fmt: skip
    if trunk:
        found |= {"trunk_up": trunk, "trunk_down": BUSY}
    usual = dict(workers_per_node=1, sites=None, site_delays_ms=None, flows={}, machines=False)
    return NetworkLayout(nodes, left=left, links=found, notes="TCP cubic", **(usual | other))


CASES = {
    f"{kind} {nodes}": network(nodes, **told)
    for nodes in (2, 4, 8, 16, 64)
    for kind, told in {
        "star": {"workers_per_node": 4},
        "two ways": {"up": BUSY, "down": CLEAR, "flows": {f"{n}-0": 2 for n in range(1, nodes)}},
        "sites": {"sites": [n % 2 for n in range(nodes)], "site_delays_ms": MATRIX},
        "dumbbell": {"left": 1, "up": None, "down": None, "trunk": ALONE, "flows": FLOWS},
        "shaped dumbbell": {"left": nodes // 2, "up": BUSY, "trunk": BUSY},
    }.items()
}


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


@pytest.mark.parametrize("case", CASES)
def test_nothing_overlaps_and_all_is_inside(case):
    figure = topology.network(CASES[case], "of a title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    shown = [text for text in figure.axes[0].texts if text.get_text()]
    boxes = {text: text.get_window_extent() for text in shown}
    for one, other in itertools.combinations(shown, 2):
        assert not boxes[one].overlaps(boxes[other]), (one.get_text(), other.get_text())
    patches = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    for text, patch in itertools.product(shown, patches):
        edge = patch.get_window_extent()
        inside = edge.count_contains(boxes[text].corners()) == 4
        assert inside or not edge.overlaps(boxes[text]), text.get_text()
    assert all(figure.bbox.count_contains(box.corners()) == 4 for box in boxes.values())


def test_of_many_nodes_some_are_drawn_and_the_others_are_counted():
    said = texts(topology.network(CASES["star 64"]))
    drawn = [text for text in said if text.startswith("node ")]
    assert len(drawn) == 8 and "node 63\n4 workers" in drawn
    assert "64 nodes, of which some are drawn" in said
    assert len([t for t in texts(topology.network(CASES["star 16"])) if "node " in t]) == 16


def test_both_ways_are_told_apart_only_where_they_differ():
    said = texts(topology.network(CASES["two ways 2"]))
    assert "up 20.5–12,500 Mbit/s, 5–200 ± 1–20 ms, loss 1–5 %" in said
    assert "down 5 Mbit/s" in said
    assert texts(topology.network(CASES["star 2"])).count("both ways 20–312 Mbit/s") == 2


def test_the_delays_between_sites_are_told():
    said = texts(topology.network(CASES["sites 4"]))
    assert "node 3, site 1" in said
    [delays] = [text for text in said if "from site 1" in text]
    assert delays.endswith("110 to 0, 0.5 to 1")


def test_a_layout_is_what_the_run_directory_says(tmp_path):
    found = layout.read(by_hand.contended(tmp_path / "r"))
    assert found is not None
    assert (found.nodes, found.left, found.machines, found.sites) == (4, 2, False, None)
    assert found.flows == {"trunk_up": 1}
    up, down = found.links["trunk_up"], found.links["trunk_down"]
    assert up.rate_mbit == (4, 8) and down.rate_mbit == (4, 8)  # held: 4 real, 8 emulated
    assert up.delay_ms == (5, 9) and down.delay_ms == (5, 5)  # 10 real ms at dilation 2
    assert up.jitter_ms == (1, 1) and up.loss == (0, 0.25)
    said = texts(topology.network(found))
    assert "only the trunk is shaped" in said
    assert "rates and delays are emulated; an emulated second takes 2 real ones." in said[-3]


def test_the_delay_between_sites_is_not_the_links(tmp_path):
    run = by_hand.contended(tmp_path / "r")
    netem = [{"delay_us": 45_000}, {"delay_us": 5500}]  # from site 0, from site 1; to site 1
    links = {"down0": {"rate_mbit": 1.0, "netem": netem}}
    network = {"links": links, "sites": [1, 0, 0, 0], "site_delays_ms": [[0.5, 40], [40, 0.5]]}
    by_hand.write_json(run / "environment.json", {"network": network})
    found = layout.read(run)
    assert found is not None and found.links["down0"].delay_ms.low == pytest.approx(5.0)


def test_a_class_that_a_config_names_is_not_imported(tmp_path):
    run = by_hand.contended(tmp_path / "r")
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config + "parallel: {_target_: antigravity.Server}\n")
    assert layout.read(run) is not None and "antigravity" not in sys.modules


def test_without_records_of_a_network_there_is_no_layout(tmp_path):
    assert layout.read(by_hand.run(tmp_path / "r", by_hand.config("topk"))) is None
