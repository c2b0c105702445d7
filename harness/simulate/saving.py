"""Checkpoints of a simulated run: those that its ranks would have written."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controllers.base import Observation
from harness.records import Events
from harness.settings import Settings
from harness.simulate.side import Side
from harness.training.assembly import with_state
from harness.training.checkpoint import Files, Writer
from harness.training.resume import deciding
from harness.training.snapshot import taken


@dataclass
class Saver:
    """Writes the files of every rank, one after the other."""

    run_dir: Path
    settings: Settings
    device: str  # cpu | cuda
    events: Events
    schemes: dict[str, Any]  # of the cuts of the model, by name: of the one worker where it has any
    _files: list[Files] = field(default_factory=list, init=False)

    def save(
        self,
        done: int,
        time_s: float,
        shared: dict[str, Any],
        owns: list[dict[str, Any]],
        sides: list[Side],
        seen: list[Observation],
    ) -> None:
        """After `done` steps; by rank what each has alone, its reduction, its last observation."""
        self._files = []
        for rank in reversed(range(len(sides))):  # the first concludes
            learnt = with_state(sides[rank].reduction) | self.schemes
            kept = {"reduction": state_of(learnt), "seen": seen[rank]._asdict()}
            self._writer(rank).write(done, time_s, shared if rank == 0 else {}, owns[rank] | kept)

    def _writer(self, rank: int) -> Writer:
        return Writer(
            run_dir=self.run_dir,
            rank=rank,
            leads=rank == 0,
            gather=self._gather,
            device=self.device,
            settings=deciding(self.settings.config),
            events=self.events,
        )

    def _gather(self, mine: Files) -> list[Files]:
        self._files.insert(0, mine)
        return self._files


def state_of(learnt: dict[str, Any]) -> dict[str, Any]:
    """What was learnt so far, as plain values; TypeError for what cannot be kept."""
    return {name: taken(thing, name) for name, thing in learnt.items()}
