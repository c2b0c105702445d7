"""A replay without values does what one with values does."""

import pandas as pd
import pytest

from harness.virtual.exchange import VirtualExchange
from tests.virtual.runs import simulated

ASKED = ("steps=6", "workers=4", "emulation.compute=replay", "network/device=v100",
         "network.alike=true", "bucket_mb=0.02")  # fmt: skip
QUARTER = ("controller.density=0.25",)
COMPRESSORS = {"dense": (), "fp16": (), "powersgd": (), "ef_signsgd": (), "signsgd": (),
               "topk": QUARTER, "acp_sgd": (), "covap": QUARTER, "randomk": QUARTER,
               "netsense": ("controller.density=0.05",), "sparseloco": QUARTER, "int8": (),
               "demo": (*QUARTER, "error_feedback=false", "optimizer.momentum=0")}  # fmt: skip


@pytest.fixture
def asked(monkeypatch) -> list[bool]:
    """Whether exchanges went without values, each time that somebody asked."""
    known, said = VirtualExchange.by_shape.fget, list[bool]()

    def told(exchange: VirtualExchange) -> bool:
        said.append(known(exchange))
        return said[-1]

    monkeypatch.setattr(VirtualExchange, "by_shape", property(told))
    return said


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_steps_without_values_are_those_with_them(tmp_path, monkeypatch, asked, compressor):
    of_run = (*ASKED, "method=topk", f"compressor={compressor}",
              *(COMPRESSORS[compressor] or ("controller.density=1",)))  # fmt: skip
    without = simulated(tmp_path / "without", *of_run)
    assert asked == [True]
    monkeypatch.setattr(VirtualExchange, "by_shape", False)
    values = simulated(tmp_path / "with", *of_run)
    pd.testing.assert_frame_equal(*(pd.read_csv(run / "steps.csv") for run in (without, values)))


def test_values_are_there_where_they_decide_or_take_time(tmp_path, asked):
    for of_run in (("method=dgc",), ("method=topk", "network/device=measured")):
        simulated(tmp_path / of_run[-1].replace("/", "_"), *ASKED, *of_run)
    assert asked == [False, False]
