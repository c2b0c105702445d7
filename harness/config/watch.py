"""Setting `watch`: which statistics of gradients and activations are recorded, and how often."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Watch:
    """Selection of the statistics that each rank records of its own tensors."""

    every: int = 10  # steps
    densities: Sequence[float] = (
        0.25,
        0.1,
        0.05,
    )  # shares of elements whose thresholds are recorded
    gradients: Sequence[str] = ()  # parameters whose compressed input (with residual) is recorded
    histogram_at: Sequence[int] = ()  # steps with a histogram of activations before each cut

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every must be a whole number >= 1, got {self.every!r}")
        from compressors.activations.rows import check_density  # imports torch

        for density in self.densities:
            check_density(density)

    def check(self, names: Sequence[str]) -> None:
        """Raise ValueError if `gradients` has a name that no parameter in `names` has."""
        if missing := [name for name in self.gradients if name not in names]:
            raise ValueError(f"gradients must be of {', '.join(names)}, got {', '.join(missing)}")
