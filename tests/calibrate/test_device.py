"""What compression costs a device: times that follow a cost are fitted by it."""

from collections.abc import Sequence

import pytest
import torch
import yaml

from harness.calibrate import compression, device
from harness.calibrate.compression import MatrixLayout, TimedLayout
from harness.config import device_costs
from harness.config.device_costs import Cost, Given

COSTS = {
    "topk": Cost(bucket_us=600, matrix_us=1.5, element_ns=0.013),
    "powersgd": Cost(bucket_us=380, matrix_us=370, column_us=0.7, element_ns=0.006, rank_ns=0.02),
}


def samples(
    name: str, rank: int, layouts: Sequence[MatrixLayout] = device.LAYOUTS
) -> list[TimedLayout]:
    """As long as virtual time would charge."""
    found = []
    for layout in layouts:
        shapes = list(layout.shapes.values())
        elements = sum(torch.Size(shape).numel() for shape in shapes)
        seconds = Given(COSTS[name]).seconds(elements, shapes, rank)
        found.append(TimedLayout(name, rank, layout, seconds))
    return found


@pytest.mark.parametrize("layouts", [device.LAYOUTS, compression.OF_A_CORE])
def test_costs_are_found_again_and_are_a_choice(layouts: Sequence[MatrixLayout]) -> None:
    timed = samples("topk", 0, layouts)
    timed += [row for rank in compression.RANKS for row in samples("powersgd", rank, layouts)]
    found = compression.fitted(timed)
    for name, cost in COSTS.items():
        assert found[name].cost._asdict() == pytest.approx(cost._asdict(), rel=1e-4)
        assert found[name].worst < 1e-6
    told = yaml.safe_load(device.text("a device", found))
    device_costs.check(told)
    given = device_costs.given("powersgd", told, 1.0)
    assert given.cost.matrix_us == pytest.approx(370) and given.cost.rank_ns == pytest.approx(0.02)


def test_compressors_are_timed_on_buckets_of_matrices() -> None:
    asked = [["compressor=topk", "controller.density=0.1"], ["compressor=powersgd"]]
    layouts = [MatrixLayout(1, 16), MatrixLayout(3, 8)]
    rows = list(compression.measured(asked, layouts))
    assert [(row.compressor, row.layout) for row in rows] == [
        (name, layout) for name in ("topk", "powersgd") for layout in layouts
    ]
    assert all(row.seconds > 0 for row in rows) and rows[-1].rank > 0


def test_a_rank_is_varied_where_there_is_one() -> None:
    told = [
        one for one in compression.compositions((device.DENSITY,)) if "compressor=powersgd" in one
    ]
    assert [one[-1] for one in told] == [f"compressor.rank={rank}" for rank in compression.RANKS]
