"""Where models are cut, in which order stages work, and what a run refuses to do with cuts."""

import pytest
import torch
from torch import nn

from harness.config.parallel import ORDERS
from harness.config.settings import BadSetting
from harness.engine.pipeline.engine import SCHEDULES
from harness.engine.pipeline.stages import cuts_of, parts, shapes
from harness.validation import checked
from harness.workloads.models.base import multiply_adds
from harness.workloads.models.convnet import ConvNet
from harness.workloads.models.mlp import MLP
from tests.test_settings import settings

IMAGE = (1, 8, 8)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_schedule_takes_every_micro_batch_once_each_way_in_order(name, stages, count) -> None:
    for stage in range(stages):
        work = list(SCHEDULES[name](stage, stages, count))
        for way in ("forward", "backward"):
            assert [part for each, part in work if each == way] == list(range(count))
        for part in range(count):
            assert work.index(("forward", part)) < work.index(("backward", part))


def test_every_schedule_that_a_run_may_name_is_one() -> None:
    assert set(ORDERS) == set(SCHEDULES)


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_1f1b_holds_as_many_micro_batches_as_stages_are_left(stages) -> None:
    for stage in range(stages):
        held = most = 0
        for way, _ in SCHEDULES["1f1b"](stage, stages, 8):
            held += 1 if way == "forward" else -1
            most = max(most, held)
        assert most == stages - stage


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_no_schedule_waits_for_ever(name, stages) -> None:
    """Where sending does not wait, and receiving does."""
    left = [list(SCHEDULES[name](stage, stages, 6)) for stage in range(stages)]
    done: set[tuple[int, str, int]] = set()

    def may(stage: int, way: str, part: int) -> bool:
        if way == "forward":
            return stage == 0 or (stage - 1, way, part) in done
        return stage == stages - 1 or (stage + 1, way, part) in done

    while any(left):
        ready = [stage for stage in range(stages) if left[stage] and may(stage, *left[stage][0])]
        assert ready, left
        done |= {(stage, *left[stage].pop(0)) for stage in ready}


def test_stages_have_the_names_and_the_result_of_the_whole() -> None:
    model = ConvNet().build(IMAGE, 10)
    cuts = cuts_of(model, IMAGE, 3, None)
    stages = parts(model, cuts)
    names = [name for stage in stages for name, _ in stage.named_parameters()]
    assert names == [name for name, _ in model.named_parameters()]
    x = torch.randn(2, *IMAGE)
    result = x
    for stage, shape in zip(stages, [*shapes(model, cuts, IMAGE), (10,)], strict=True):
        result = stage(result)
        assert result.shape[1:] == shape
    assert torch.equal(result, model(x))


@pytest.mark.parametrize("build", [MLP(hidden=(64,) * 5).build, ConvNet().build])
@pytest.mark.parametrize("stages", [2, 3])
def test_no_other_cut_leaves_less_to_the_busiest_stage(build, stages) -> None:
    from itertools import combinations

    model = build(IMAGE, 10)
    counts = multiply_adds(model, IMAGE)

    def most(cuts) -> int:
        return max(sum(counts[name] for name, _ in part.named_parameters())
                   for part in parts(model, cuts))  # fmt: skip

    weighty = [number for number, layer in enumerate(model) if isinstance(layer, nn.Conv2d |
               nn.Linear)][1:]  # fmt: skip
    cuts = cuts_of(model, IMAGE, stages, None)
    assert most(cuts) == min(map(most, combinations(weighty, stages - 1)))


@pytest.mark.parametrize(("stages", "given", "said"), [
    (3, [2], r"cuts must be 2 for 3 stages, got \[2\]"),
    (3, [4, 2], r"cuts must grow, from 1 to 7, got \[4, 2\]"),
    (2, [8], r"cuts must grow, from 1 to 7"),
    (2, [1], r"cuts leave nothing to train in stage 0, got \[1\]"),
    (9, None, "stages must be at most 4, the layers with weights, got 9"),
])  # fmt: skip
def test_a_cut_that_cannot_be_is_refused(stages, given, said) -> None:
    with pytest.raises(ValueError, match=said):
        cuts_of(MLP().build(IMAGE, 10), IMAGE, stages, given)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["parallel=split", "workload=dc2_ptb_laptop"], "parallel: only a chain .*got a WordM"),
        (["parallel=split", "parallel.stages=9"], "parallel: stages must be at most 5"),
        (["parallel=pipeline", "parallel.stages=1"], "parallel: stages must be a whole number >="),
        (["parallel=split", "activations=dct_mp", "activations.density=0"], "activations: density"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named(overrides, said) -> None:
    with pytest.raises(BadSetting, match=said):
        checked(settings(*overrides))
