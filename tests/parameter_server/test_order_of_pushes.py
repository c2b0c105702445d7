"""Asynchronous programs: the same order of pushes gives the same weights, bit for bit.

Virtual time records an order: who pushed as which version, and which version it had pulled. The
same program over TCP is then held to it, by a condition that all wait for. Of one thread for each
trainer: two share a residual, and who of them adds to it first is not in the records.
"""

import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from harness.engine.parameter_server.exchange import Pushing
from harness.engine.parameter_server.parameter_store import ParameterStore
from tests.parameter_server.scenes import PATIENCE_S, run_of, train
from tests.virtual.runs import DETERMINED, simulated, weights

ASYNC = ("parallel=server", "model=mlp", "workers=3", "steps=6", "eval_every=100")
SLOW = ("profile=straggler", "profile.nodes.0.rate_mbit=20")  # node 0
METHODS = {
    "dense": (*ASYNC, "parallel.mode=async"),
    "sparse": (*ASYNC, "method=dct_ps_async", "parallel.drain_period=20"),
}
ORDER = ["version", "rank", "step", "pulled_version"]
OF_A_STEP = ["rank", "step", "loss", "samples", "sent_bytes", "received_bytes", "achieved_density"]


class Order:
    """Holds every pull and every push of a run back until its turn, as it is in `pushes`."""

    def __init__(self, pushes: pd.DataFrame) -> None:
        steps = list(zip(pushes["rank"], pushes.step, strict=True))
        self.pushed = dict(zip(steps, pushes.version, strict=True))
        self.pulled = dict(zip(steps, pushes.pulled_version, strict=True))
        self.to_pull, self.version = Counter(pushes.pulled_version), 0
        self.changed = threading.Condition()

    def hold(self, patch: pytest.MonkeyPatch) -> None:
        """Every trainer and server that is made while `patch` lasts."""
        pull, whole_push, apply = Pushing.pull, ParameterStore.push, ParameterStore._apply

        def pull_in_turn(trainer: Pushing, begin: float) -> float:
            version = self.pulled[trainer.rank, trainer.step]
            self._wait(lambda: self.version == version)
            pulled_at = pull(trainer, begin)  # all weights are here
            with self.changed:
                self.to_pull[version] -= 1
                self.changed.notify_all()
            return pulled_at

        def push_in_turn(store: ParameterStore, thread: Any, push: Any, content: Any) -> None:
            version = self.pushed[thread.rank, push.step]
            self._wait(lambda: self.version == version and not self.to_pull[version])
            whole_push(store, thread, push, content)

        def apply_and_tell(store: ParameterStore, pushes: Any) -> None:
            apply(store, pushes)
            with self.changed:
                self.version += 1
                self.changed.notify_all()

        patch.setattr(Pushing, "pull", pull_in_turn)
        patch.setattr(ParameterStore, "push", push_in_turn)
        patch.setattr(ParameterStore, "_apply", apply_and_tell)

    def _wait(self, turn: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(turn, PATIENCE_S), f"stopped at version {self.version}"


def in_order(folder: Path, pushes: pd.DataFrame, asked: tuple[str, ...]) -> Path:
    """The run directory of what is asked, over TCP, which has gone in the order of `pushes`."""
    with pytest.MonkeyPatch.context() as patch:
        Order(pushes).hold(patch)
        run = train(folder, run_of(*asked))
    pd.testing.assert_frame_equal(order_of(run), pushes)
    return run


def order_of(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "pushes.csv")[ORDER].sort_values("version").reset_index(drop=True)


def swapped(pushes: pd.DataFrame) -> pd.DataFrame:
    """Another order: the first two neighbours that can have, have changed their places.

    Those of which the second has not pulled the first, nor has a third before the second came.
    """
    rows = pushes.to_dict("records")
    for first, second in pairwise(rows):
        at = first["version"]
        between = {row["rank"] for row in rows if row["pulled_version"] == at + 1}
        if second["pulled_version"] <= at and between <= {first["rank"]}:
            first["version"], second["version"] = at + 1, at
            for row in rows:  # who has pushed pulls what has its push in it
                if row["rank"] == first["rank"] and row["pulled_version"] == at + 1:
                    row["pulled_version"] = at + 2
            return pd.DataFrame(rows).sort_values("version").reset_index(drop=True)
    raise AssertionError("no two neighbours can change their places")


def equal(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())


def steps_of(run: Path) -> pd.DataFrame:
    steps = pd.read_csv(run / "steps.csv")[OF_A_STEP]
    return steps.sort_values(["rank", "step"]).reset_index(drop=True)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_order_gives_the_same_weights_over_sockets_and_another_does_not(method, tmp_path):
    asked = (*METHODS[method], *SLOW)
    ours = simulated(tmp_path / "virtual", *asked, *DETERMINED, "network.noise=0.2")
    pushes = order_of(ours)
    assert (pushes.version > pushes.pulled_version).any()  # some were stale
    in_turn = pushes["rank"].to_numpy().reshape(-1, 3)
    assert (in_turn != in_turn[0]).any()
    theirs = in_order(tmp_path / "sockets", pushes, asked)
    assert equal(theirs, ours)
    pd.testing.assert_frame_equal(steps_of(theirs), steps_of(ours))
    assert not equal(in_order(tmp_path / "other", swapped(pushes), asked), ours)
