"""timeline.csv: what every worker did when, in the last steps of a run."""

from collections import deque
from pathlib import Path

from harness.records import Span, Table


class Timeline:
    """Keeps `steps` steps, however many there are."""

    def __init__(self, run_dir: Path, steps: int) -> None:
        self._run_dir = run_dir
        self._kept: deque[list[list[Span]]] = deque(maxlen=steps)

    def add(self, spans: list[list[Span]]) -> None:
        """A step: the spans of each worker, or of the one who stands for all."""
        self._kept.append(spans)

    def write(self) -> None:
        """What is kept, step by step and rank by rank; nothing where nothing is."""
        if self._kept:
            table = Table(self._run_dir, "timeline.csv")
            table.header()
            for step in self._kept:
                for spans in step:
                    table.append(*spans)
            table.close()
