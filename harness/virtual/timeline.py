"""timeline.csv: what every worker did when, in the last steps of a run."""

from collections import deque
from pathlib import Path

from harness.records.run_directory import Span, Table


class Timeline:
    """Keeps the last `steps` steps of `ranks`, or of the one who stands for all."""

    def __init__(self, run_dir: Path, steps: int, ranks: int) -> None:
        self._run_dir, self._ranks = run_dir, ranks
        self._partly: dict[int, dict[int, list[Span]]] = {}  # by step and rank
        self._kept: deque[list[list[Span]]] = deque(maxlen=steps)

    def add(self, step: int, rank: int, spans: list[Span]) -> bool:
        """Add what a rank did in a step; True if it was the last of all ranks."""
        told = self._partly.setdefault(step, {})
        told[rank] = spans
        if len(told) < self._ranks:
            return False
        self._kept.append([told[rank] for rank in sorted(told)])
        del self._partly[step]
        return True

    def write(self) -> None:
        """Write the kept steps, in order of step and rank; nothing where none are kept."""
        if self._kept:
            table = Table(self._run_dir, "timeline.csv")
            table.header()
            for step in self._kept:
                for spans in step:
                    table.append(*spans)
            table.close()
