"""No tracker: only the CSV files of the run directory are written."""

from pathlib import Path


class Csv:
    """Tracker that writes nothing beside the run directory."""

    def check(self) -> None:
        """Accept always: nothing is required."""

    def write(self, run_dir: Path) -> None:
        """Do nothing: the run directory already contains the CSV files."""
