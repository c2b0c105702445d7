"""A law can be broken: of every law there is a part that does not keep it, and is told so."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from compressors.activations.base import Piece
from compressors.activations.dense import Dense as AllCrosses
from compressors.base import Bucket, Compressor, Reduced, Workers
from controllers.fixed import Fixed
from harness.contract import activations, compressors, controllers, profiles
from harness.contract.laws import Law
from profiles.rated import Rated


class Mean(Compressor):
    """The exact mean; each broken compressor differs in one step."""

    has_level = False
    steps = 0

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        self.steps += 1
        return Reduced(self.mean(bucket, density, workers), None)

    def mean(self, bucket: Bucket, density: float, workers: Workers) -> torch.Tensor:
        return workers.all_reduce(bucket.grad.clone())


class Sums(Mean):
    def mean(self, bucket, density, workers):
        return workers.all_reduce(bucket.grad.clone(), "sum")


class NeedsTwo(Mean):
    def mean(self, bucket, density, workers):
        return workers.all_reduce(bucket.grad.clone()) + 0 / (bucket.n - 1)


class LosesTheEnd(Mean):
    def mean(self, bucket, density, workers):
        mean = workers.all_reduce(bucket.grad.clone())
        mean[1_000_000:] = 0
        return mean


class Hides(Mean):
    def mean(self, bucket, density, workers):
        return workers.all_reduce(bucket.grad.nan_to_num(0, 0, 0))


class ClaimsALevel(Mean):
    has_level = True


class NeedsOneDensity(Mean):
    def mean(self, bucket, density, workers):
        k = max(1, int(density * bucket.n))
        workers.all_reduce(bucket.grad[:k].clone())
        return workers.all_reduce(bucket.grad.clone())


class Draws(Mean):
    def mean(self, bucket, density, workers):
        torch.rand(1)
        return workers.all_reduce(bucket.grad.clone())


class WritesOverWhatItReads(Mean):
    def mean(self, bucket, density, workers):
        mean = bucket.empty_mean().zero_()
        return mean.add_(workers.all_reduce(bucket.grad.clone()))


class Drifts(Mean):
    def mean(self, bucket, density, workers):
        mean = workers.all_reduce(bucket.grad.clone())
        return mean.add_(1e-3 * workers.rank) if self.steps > 9 else mean


class TooMuch(Fixed):
    def density(self, seen):
        return 1.0 if seen is None else 1 + seen.comm_s


class Guesses(Fixed):
    def density(self, seen):
        return random.uniform(0.1, 1)


class LooksAtTimes(Fixed):
    reacts_to_network = False

    def density(self, seen):
        return 1.0 if seen is None else 1 / (1 + seen.comm_s)


@dataclass(frozen=True, kw_only=True)
class Level(Rated):
    def mbit(self, time_s: float, node: int) -> float:
        return 10.0

    def range_mbit(self) -> tuple[float, float]:
        return 10.0, 10.0


class Noisy(Level):
    def mbit(self, time_s, node):
        return random.uniform(9, 11)


class Faster(Level):
    def mbit(self, time_s, node):
        return 10 + time_s


class StartsLater(Level):
    def link(self, time_s, node, way):
        return super().link(time_s, node, way)._replace(delay_ms=5.0 if time_s < 0 else 0.0)


class Another(Level):
    __eq__, __hash__ = object.__eq__, object.__hash__


class DrawsAMask(AllCrosses):
    def forward(self, rows, training):
        mask = torch.rand_like(rows) < 0.5
        return Piece(rows[mask], mask), None

    def received(self, piece, shape, training):
        return torch.zeros(shape).masked_scatter(piece.mask, piece.values), None

    def count(self, shape):
        return None


class KeepsAFile(AllCrosses):
    def forward(self, rows, training):
        self.file = open("/dev/null")  # noqa: SIM115
        return super().forward(rows, training)


BREAKS: dict[str, tuple[type, str]] = {  # by the function of a law: who breaks it, what is seen
    "mean_of_contributions": (Sums, "from the mean of grad - unsent (case one hot, 2)"),
    "any_size": (NeedsTwo, "ZeroDivisionError: division by zero (case 1)"),
    "large_bucket": (LosesTheEnd, "of 3000001 differs by"),
    "not_finite": (Hides, "all means of 40 steps are finite (case nan, 0.001)"),
    "bytes_grow": (ClaimsALevel, "bytes at densities"),
    "densities_differ": (NeedsOneDensity, "all_reduce of unlike tensors"),
    "repetition": (Draws, "torch's global random numbers were drawn"),
    "in_place": (WritesOverWhatItReads, "the means of step 0 differ"),
    "replicas_stay_equal": (Drifts, "weights of ranks 0 and 1 differ after 20 steps"),
    "density_is_allowed": (TooMuch, "TooMuch.density() must be a number in (0, 1], got "),
    "same_again": (Guesses, " after 0 exchanges"),
    "same_at_any_times": (LooksAtTimes, "at exchange 1 of a slower network"),
    "is_pure": (Noisy, ") was Link(rate_mbit="),
    "plays_the_same": (Noisy, "at 0.0 s Link("),
    "keeps_its_extremes": (Faster, "is beyond Extremes("),
    "starts_before_zero": (StartsLater, "the link up is Link("),
    "is_a_key": (Another, "equal profiles are two keys"),
    "sides_are_the_operator": (DrawsAMask, "activations differ at batch 0"),
    "can_be_kept": (KeepsAFile, "TypeError"),
}
LAWS: dict[str, Law] = {
    law.holds.__name__: law
    for room in (compressors, controllers, profiles, activations)
    for law in room.LAWS
}


def made(kind: type) -> Any:
    return kind(density=0.1) if issubclass(kind, Fixed) else kind()


@pytest.mark.parametrize("name", LAWS)
def test_a_part_that_breaks_the_law_is_told_what_was_seen(name):
    kind, seen = BREAKS[name]
    told = LAWS[name].broken(lambda *_: made(kind))
    assert seen in told and "\n" not in told, told
