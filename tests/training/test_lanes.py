"""What `emulation` says of compression acts over packets as it does in virtual time."""

from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from harness.clock import Clock
from harness.config.lanes import Lanes
from harness.config.settings import BadSetting
from harness.engine.exchange.reduction import BucketBuffers
from harness.engine.training.build import exchange_of
from harness.engine.training.rank_context import anew
from harness.workloads.models.stand_in import represented
from tests.virtual.runs import over_gloo, settings_of, simulated, weights

RUN = ("steps=4", "workers=2", "batch_size=8", "bucket_mb=0.002", "emulation.compute=paced")
ROUNDING_S = 1e-6


def told(run) -> pd.DataFrame:
    """Steps, with how long each took at its rank."""
    steps = pd.read_csv(run / "steps.csv").sort_values(["rank", "step"])
    ended_s = steps.groupby("rank").time_s
    return steps.assign(took_s=ended_s.diff().fillna(steps.time_s))


@pytest.mark.parametrize(("method", "lanes"), [
    ("topk", ()),
    ("topk", ("emulation.compression=own",)),
    ("topk", ("emulation.hooks=wait", "emulation.interference=2")),
    ("powersgd", ()),
])  # fmt: skip
def test_on_any_lanes_weights_are_equal_and_steps_have_room_for_their_parts(
    tmp_path, method, lanes
):
    asked = (*RUN, f"method={method}", *lanes)
    real, virtual = over_gloo(tmp_path / "real", *asked), simulated(tmp_path / "virtual", *asked)
    expected = weights(virtual)
    for name, value in weights(real).items():
        assert torch.equal(value, expected[name]), name
    steps = told(real)
    parts_s = steps.compute_s + steps.exposed_s
    if "emulation.compression=own" not in lanes:  # there it may be beside backward
        parts_s += steps.compress_s
    assert (steps.took_s >= parts_s - ROUNDING_S).all()
    assert (steps.compress_s > 0).all() and (steps.exposed_s <= steps.comm_s + ROUNDING_S).all()


@pytest.mark.parametrize(("stands_for", "dilation"), [("convnet", 2.0), ("mlp_as_vgg16", 1.0)])
def test_over_packets_compression_is_charged_what_it_costs_the_device(stands_for, dilation):
    """As in virtual time, over the dilation, each bucket what its elements represent."""
    asked = (f"model={stands_for}", "emulation.compute=paced", "method=topk")
    real, virtual = (
        settings_of(*asked, f"network={network}", "network/device=v100", *more).run()
        for network, more in (("netns", (f"emulation.dilation={dilation}",)), ("simulated", ()))
    )
    model = real.model.build((1, 8, 8), 10)
    clock = Clock()
    clock.start()
    given = {"workers": SimpleNamespace(), "clock": clock, "shared": anew}
    place = SimpleNamespace(exchange=SimpleNamespace, **given)
    exchange = exchange_of(real, place, model, {})
    assert exchange.lanes == Lanes()
    names, gradients = zip(*[*model.named_parameters()][:3], strict=True)
    laid = BucketBuffers(torch.empty(0), names, gradients)
    given = virtual.network.compression("topk", 1, 1.0, partial(represented, virtual.model))
    of = sum(parameter.numel() for parameter in model.parameters())
    elements = sum(gradient.numel() for gradient in gradients)
    expected = dilation * given.seconds(elements, of=of)
    assert expected > 0 and exchange.charge(laid, 0.1, 0) == pytest.approx(expected)


@pytest.mark.parametrize(
    "asked", ["emulation.compute=measured", "parallel=server", "parallel=pipeline"]
)
def test_a_device_that_charges_nothing_is_refused(asked):
    with pytest.raises(BadSetting, match="network/device must be measured over packets"):
        settings_of("network=netns", "network/device=v100", "emulation.compute=paced", asked)
