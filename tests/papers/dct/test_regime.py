"""The regime of DCT's production model is that of the paper's card, core and batch, computed."""

import pytest
import torch

from tests.test_settings import settings

CARD_MBIT, BATCHES = 12_500, (100, 1000)
MULTIPLY_ADDS_PER_S = 31e9  # of a core of 2 GHz: benchmarks/core.py


@pytest.mark.parametrize("experiment", ["dct_fig8a", "dct_fig8c"])
def test_links_and_steps_follow_from_what_the_paper_tells(experiment):
    found = settings(f"+experiment={experiment}", "scale=laptop")
    model, data = found.build("model"), found.build("dataset")
    with torch.device("meta"):
        own = sum(each.numel() for each in model.build(data.shape, data.classes).parameters())
    original = model.original
    weights = sum(original.sizes.values())
    trainers, server = found["profile.rate_mbit"][:-1], found["profile.rate_mbit"][-1]
    assert trainers == pytest.approx([CARD_MBIT * own / weights] * found["workers"], rel=1e-3)
    assert server == pytest.approx(sum(trainers))
    assert original.batch_size == pytest.approx((BATCHES[0] * BATCHES[1]) ** 0.5, rel=1e-3)
    times = model.times.at(found["batch_size"])
    forward_s = original.batch_size * weights / MULTIPLY_ADDS_PER_S
    assert (times.forward_s, times.backward_s) == pytest.approx(
        (forward_s, 2 * forward_s), rel=3e-3
    )


def test_trainers_are_asynchronous_threads_with_drains():
    found = settings("+experiment=dct_fig8a", "scale=laptop", "method=dct_hogwild").run()
    layout = found.server
    assert (layout.mode, layout.threads) == ("async", 18)
    assert layout.drain_period == found.steps and found.error_feedback
