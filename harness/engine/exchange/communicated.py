"""What a rank leaves of its collectives: a row of collectives.csv for each."""

from dataclasses import dataclass
from pathlib import Path

from harness.clock import Clock
from harness.engine.exchange.workers import Workers
from harness.records.run_directory import Collective, Table


@dataclass
class Communicated:
    """Writes those of `workers`, as one write a step; times are on the emulated clock."""

    run_dir: Path
    rank: int
    workers: Workers
    clock: Clock

    def __post_init__(self) -> None:
        self._table = Table(self.run_dir, "collectives.csv")

    def told(self, ended: float) -> float:
        """Write the collectives of a step that has ended; the clock has not stood still in it."""
        counted, self.workers.counted = self.workers.counted, []
        origin, per_s = self.clock.monotonic(0.0), 1 / self.clock.dilation
        self._table.append(
            *(
                Collective((begin - origin) * per_s, (end - origin) * per_s, self.rank, *nbytes)
                for begin, end, *nbytes in counted
            )
        )
        return ended
