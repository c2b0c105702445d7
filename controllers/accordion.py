"""Accordion: little compression while the gradient's norm changes fast (Agarwal et al., 2021).

After the paper and its public code, which compare the norm of each layer's accumulated gradient
with that of the check before; here it is the mean norm of the whole gradient over a stretch of
exchanges. They also compress little after a decay of the learning rate, which a controller does not
see. The network has no say.
"""

from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import check, check_above, check_share, check_whole
from controllers.norm_change import NormChange


@dataclass(kw_only=True)
class Accordion(Controller):
    """Two densities; high until two stretches are over, and while |change| / before >= `eta`."""

    needs_norms = True
    reacts_to_network = False
    low: float = 0.01  # outside critical regimes, in (0, high]
    high: float = 0.1  # inside them, in (0, 1]
    eta: float = 0.5  # relative change of the norm that makes a regime critical, > 0
    window: int = 25  # exchanges of a stretch, >= 1
    _change: NormChange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_share(high=self.high, low=self.low)
        check("low", self.low, self.low <= self.high, f"in (0, {self.high}] (high)")
        check_above(0, eta=self.eta)
        check_whole(1, window=self.window)
        self._change = NormChange(self.window)

    def density(self, seen: Observation | None) -> float:
        """`high` or `low`."""
        if seen is not None:
            self._change.update(seen.grad_norm)
        return self.high if self._change.ratio >= self.eta else self.low

    def state(self) -> dict[str, float]:
        """The last relative change of the norm; empty before there is one."""
        return {"change": self._change.ratio} if self._change.done > 1 else {}
