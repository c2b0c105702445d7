"""A replay without values does what one with values does."""

import pandas as pd
import pytest
import torch

from harness.virtual import valueless
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


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_what_has_no_value_is_0_while_a_bucket_is_reduced(kind):
    asked = torch.empty((), dtype=kind, device="meta")
    with valueless.on(torch.empty(3, device="meta")):
        assert asked.item() == 0 and not asked
        with valueless.on(torch.ones(3)), pytest.raises(RuntimeError, match="meta tensors"):
            asked.item()
        assert asked.item() == 0
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        asked.item()


def test_it_is_over_when_a_reduction_fails():
    asked = torch.empty((), device="meta")
    with pytest.raises(ZeroDivisionError), valueless.on(asked):
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="meta tensors"):
        asked.item()


def test_values_that_are_there_are_told():
    with valueless.on(torch.ones(3)):
        assert torch.tensor(7.5).item() == 7.5
    with valueless.on(torch.ones(3, device="meta")):
        assert torch.tensor(7.5).item() == 7.5
