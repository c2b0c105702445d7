"""The setting `watch`: what is recorded of gradients and activations, and how often."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Watch:
    """Choice of what each rank records, every `every` steps, of what it computes itself."""

    every: int = 10  # steps
    densities: Sequence[float] = (0.25, 0.1, 0.05)  # thresholds are of what such shares reach
    gradients: Sequence[str] = ()  # names of parameters: of what is compressed, residual included
    histogram_at: Sequence[int] = ()  # steps, of all activations of a batch before each cut

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every must be a whole number >= 1, got {self.every!r}")
        from compressors.activations.rows import check_density  # torch, for this setting alone

        for density in self.densities:
            check_density(density)

    def check(self, names: Sequence[str]) -> None:
        """ValueError unless a model's parameters have all names that it is to look at."""
        if missing := [name for name in self.gradients if name not in names]:
            raise ValueError(f"gradients must be of {', '.join(names)}, got {', '.join(missing)}")
