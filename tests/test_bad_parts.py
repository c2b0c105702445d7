"""A part that breaks its interface is refused in one line that names its class."""

import json
import re
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.activations import calls
from compressors.activations.base import Piece
from compressors.activations.dense import Dense
from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.checks import BadPart
from controllers.base import Controller
from harness.config.settings import BadSetting
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import density_of, horizon_of, state_of
from harness.runner.run import Outcome, failure_report
from profiles.base import Extremes, Link, Profile
from tests.controllers.observations import seen
from tests.exchange.test_reduction import LAYOUTS, exchange, grads, reduction
from tests.virtual.runs import settings_of, simulated

REDUCED = {  # what is made of mean and unsent, and what is said of it
    "short": (lambda mean, unsent: Reduced(mean[:7], unsent), ".mean must .* got float32 [7] on"),
    "one": (lambda mean, unsent: Reduced(mean[:1].clone(), None), ".mean must .* got float32 [1]"),
    "long": (lambda mean, unsent: Reduced(torch.cat([mean, mean]), unsent), "got float32 [1356]"),
    "shaped": (lambda mean, unsent: Reduced(mean.view(1, -1), unsent), "got float32 [1, 678]"),
    "absent": (lambda mean, unsent: Reduced(None, unsent), ".mean must .* got None"),
    "wide": (lambda mean, unsent: Reduced(mean.double(), unsent), "got float64 [678] on cpu"),
    "narrow": (lambda mean, unsent: Reduced(mean.half(), unsent), "got float16 [678] on cpu"),
    "numpy": (lambda mean, unsent: Reduced(mean.numpy(), unsent), "got a numpy.ndarray"),
    "elsewhere": (lambda mean, unsent: Reduced(mean.to("meta"), unsent),
                  "got float32 [678] on meta"),
    "expanded": (lambda mean, unsent: Reduced(mean[:1].expand(678), None), "cpu, not contiguous"),
    "sparse": (lambda mean, unsent: Reduced(mean.to_sparse(), None), "cpu, torch.sparse_coo"),
    "a graph": (lambda mean, unsent: Reduced(mean.requires_grad_(), None),
                "detached from its graph"),
    "a pair": (lambda mean, unsent: (mean, unsent), "Reduced(mean, unsent), got a tuple of 2"),
    "three": (lambda mean, unsent: (mean, unsent, 0), "Reduced(mean, unsent), got a tuple of 3"),
    "a tensor": (lambda mean, unsent: mean, "Reduced(mean, unsent), got float32 [678] on cpu"),
    "nothing": (lambda mean, unsent: None, "Reduced(mean, unsent), got None"),
    "unsent: 0": (lambda mean, unsent: Reduced(mean, 0), ".unsent must .* got 0"),
    "unsent: short": (lambda mean, unsent: Reduced(mean, unsent[:9].clone()), ".* got float32 [9]"),
    "unsent: wide": (lambda mean, unsent: Reduced(mean, unsent.double()), ".* got float64 [678]"),
    "resized": (lambda mean, unsent: Reduced(mean, unsent.resize_(1)), ".* got float32 [1] on cpu"),
}  # fmt: skip


class Returns(Compressor):
    """Dense, but returns what `made` makes of mean and unsent."""

    def __init__(self, made, sent_entries=None) -> None:
        self.made, self.sent_entries = made, sent_entries

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        return self.made(workers.all_reduce(bucket.grad.clone()), bucket.grad)


def refused(act, said: str) -> None:
    with pytest.raises(BadPart) as error:
        act()
    assert "\n" not in str(error.value)
    assert re.search(re.escape(said).replace(r"\.\*", ".*"), str(error.value)), error.value


@pytest.mark.parametrize("how", REDUCED)
@pytest.mark.parametrize("feedback", [Residual, NoFeedback])
def test_what_is_no_whole_result_is_refused_and_the_class_is_named(how, feedback):
    made, said = REDUCED[how]
    worker = reduction(Returns(made), feedback())
    refused(
        lambda: exchange(worker, 0, LAYOUTS[0], grads(0)),
        f"test_bad_parts.Returns.reduce().*{said}",
    )


@pytest.mark.parametrize("count", ["7", 0.5, -1, torch.tensor(3)], ids=repr)
def test_a_count_of_entries_is_a_whole_number(count):
    worker = reduction(Returns(Reduced, count))
    refused(
        lambda: exchange(worker, 0, LAYOUTS[0], grads(0)), "sent_entries must be None or a whole"
    )


class Says(Controller):
    """Answers every question with `value`."""

    def __init__(self, value) -> None:
        self.value = value

    def density(self, seen):
        return self.value

    horizon = state = lambda self, *_: self.value


NO_DENSITY = [None, nan, 0, -0.1, 1.5, "0.1", torch.tensor(0.1), [0.1]]


@pytest.mark.parametrize("value", NO_DENSITY, ids=repr)
def test_a_decision_that_is_no_number_is_refused_and_the_controller_is_named(value):
    refused(
        lambda: density_of(Says(value), None), "Says.density() must be a number in (0, 1], got "
    )
    if value != 0:
        refused(
            lambda: state_of(Says({"x": value if not isinstance(value, float) else None})),
            "['x'] must",
        )
    refused(lambda: horizon_of(Says(value), seen(0)), "Says.horizon() must be a whole number >= 1")
    refused(lambda: state_of(Says(value)), "Says.state() must be a dict of names and numbers, got")


@pytest.mark.parametrize("value", [None, "0.1", torch.tensor(0.1), [0.1]], ids=repr)
def test_a_controller_records_numbers(value):
    refused(lambda: state_of(Says({"x": value})), "Says.state()['x'] must be a number, got")


def test_a_number_of_numpy_is_a_number():
    assert density_of(Says(np.float32(0.5)), None) == 0.5
    assert horizon_of(Says(np.int64(3)), seen(0)) == 3


class Squeezes(Dense):
    """Dense, but for what `instead` returns in place of its methods."""

    def __init__(self, **instead) -> None:
        super().__init__()
        vars(self).update({name: lambda *_, made=made: made for name, made in instead.items()})


ROWS = torch.ones(2, 3)
MASKED = Piece(torch.ones(5), torch.ones(2, 3, dtype=torch.bool))
CROSSINGS = {
    "forward().*tuple of two.*got float32 [6]": {"forward": torch.ones(6)},
    "forward()[0] must be.*Piece, got None": {"forward": (None, None)},
    "forward()[0].values.*got float64 [6]": {"forward": (Piece(torch.ones(6).double()), None)},
    "forward()[0].values.*one for each of 6": {"forward": (MASKED, None)},
    "forward()[0].mask.*got float32 [2, 3]": {"forward": (Piece(torch.ones(6), ROWS), None)},
    "count() must be 6.*got 5": {"count": 5},
    "count() must be 6.*got None": {"count": None},
    "received()[0] must.*[2, 3].*got float32 [3, 2]": {"received": (torch.ones(3, 2), None)},
    "backward() must be.*got a tuple of 2": {"backward": (torch.ones(6), None)},
    "backward().values.*[k].*got float32 [2, 3]": {"backward": Piece(ROWS)},
    "returned() must be.*got None": {"returned": None},
    "returned() must be.*got float32 [6]": {"returned": torch.ones(6)},
}


def crossed(scheme) -> Tensor:
    """The calls of a cut, in their order."""
    shape = (2, 3)
    piece, before = calls.forward(scheme, ROWS, True)
    _, after = calls.received(scheme, piece, shape, True)
    return calls.returned(scheme, calls.backward(scheme, ROWS, after), before, shape)


@pytest.mark.parametrize("said", CROSSINGS)
def test_what_cannot_cross_a_cut_is_refused_and_the_scheme_is_named(said):
    assert torch.equal(crossed(Squeezes()), ROWS)
    refused(partial(crossed, Squeezes(**CROSSINGS[said])), f"test_bad_parts.Squeezes.{said}")


@dataclass(frozen=True)
class Plays(Profile):
    """A profile that checks nothing: what `profile=static` sets is what its links have."""

    rate_mbit: Any
    delay_ms: Any
    jitter_ms: Any
    loss: Any
    reorder: Any

    def link(self, time_s, node, way):
        return Link(self.rate_mbit, self.delay_ms, self.jitter_ms, self.loss, self.reorder)

    def flows(self, time_s):
        return 0

    def extremes(self):
        return Extremes(1, 1000)


PLAYED = {"rate_mbit": ("-5", "0", "nan", "inf", "1e-9", "text", "null", "[1]"),
          "delay_ms": ("-1", "nan", "1e9", "null"), "jitter_ms": ("-1", "inf"),
          "loss": ("-0.1", "2", "nan", "text"), "reorder": ("-1", "inf")}  # fmt: skip


@pytest.mark.parametrize("key", PLAYED)
def test_a_link_that_cannot_be_played_is_refused_before_anything_starts(key):
    words = ("workers=2", "steps=5", "profile._target_=tests.test_bad_parts.Plays")
    settings_of(*words)
    for value in PLAYED[key]:
        said = (
            rf"profile: tests.test_bad_parts.Plays.link\(0.0, 0, 'up'\).{key} must be a number in"
        )
        with pytest.raises(BadSetting, match=said):
            settings_of(*words, f"profile.{key}={value}")


SHORT = r"rank \d: tests.faults.ReturnsShort.reduce\(\).mean must be .*, got float32 \[7\] on cpu"
FAILS = {  # settings of a run; its last line; whether a traceback comes before
    "compressor._target_=tests.faults.ReturnsShort error_feedback=true": (SHORT, False),
    "compressor._target_=tests.faults.ReturnsShort parallel=local parallel.h=1": (SHORT, False),
    "compressor._target_=tests.faults.ReturnsShort parallel=server": (SHORT, False),
    "compressor._target_=tests.faults.AddsUnlike": (
        r"rank \d: RuntimeError: The size of tensor .*, in tests.faults.AddsUnlike.reduce",
        True,
    ),
    "optimizer.lr=1e20": (r"rank \d: FloatingPointError: the gradient of .* batch", True),
}


AT_START = {
    "compressor._target_=tests.faults.ReturnsShort +compressor.since=0": (
        "compressor: tests.faults.ReturnsShort.reduce().mean must be .* got float32 [7] on cpu"
    ),
    "method=topk controller._target_=tests.test_bad_parts.Says +controller.value=text "
    "~controller.density": "controller: tests.test_bad_parts.Says.density() must be .* got 'text'",
    "parallel=split activations._target_=tests.test_bad_parts.Squeezes +activations.count=5": (
        "activations: tests.test_bad_parts.Squeezes.count() must be 240 .* got 5"
    ),
}


@pytest.mark.parametrize("settings", AT_START)
def test_what_a_part_does_wrong_at_once_is_refused_before_anything_starts(settings):
    with pytest.raises(BadSetting) as error:
        settings_of("workers=2", "steps=5", *settings.split())
    assert re.match(re.escape(AT_START[settings]).replace(r"\.\*", ".*"), str(error.value)), error


@pytest.mark.parametrize("settings", FAILS)
def test_the_last_line_of_a_run_names_the_class_that_failed(settings, tmp_path):
    last, has_traceback = FAILS[settings]
    run = simulated(tmp_path / "run", "steps=5", "workers=2", *settings.split())
    told = json.loads((run / "status.json").read_text())
    assert told["state"] == "failed" and re.fullmatch(last, told["error"]), told["error"]
    report = failure_report(Outcome(run, "failed", told["error"], False))
    assert report.splitlines()[-1] == f"run failed: {told['error']}"
    assert ("Traceback" in report) == has_traceback
    [log] = (run / "logs").glob("rank*.log")
    assert "Traceback" in log.read_text()
