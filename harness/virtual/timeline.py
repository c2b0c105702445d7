"""timeline.csv: the activities of every worker in the last steps of a run."""

from collections import deque
from pathlib import Path

from harness.records.run_directory import Span, Table


class Timeline:
    """Record of the last `steps` steps of `ranks`, or of the one that stands for all."""

    def __init__(self, run_dir: Path, steps: int, ranks: int) -> None:
        self._run_dir, self._ranks = run_dir, ranks
        self._partly: dict[int, dict[int, list[Span]]] = {}  # by step and rank
        self._kept: deque[list[list[Span]]] = deque(maxlen=steps)

    def add(self, step: int, rank: int, spans: list[Span]) -> bool:
        """Add the spans of a rank in a step. Return True if it was the last rank."""
        told = self._partly.setdefault(step, {})
        told[rank] = spans
        if len(told) < self._ranks:
            return False
        self._kept.append([told[rank] for rank in sorted(told)])
        del self._partly[step]
        return True

    def write(self) -> None:
        """Write the recorded steps, ordered by step and rank, if there are any."""
        if self._kept:
            table = Table(self._run_dir, "timeline.csv")
            table.header()
            for step in self._kept:
                for spans in step:
                    table.append(*spans)
            table.close()
