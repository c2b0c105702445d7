"""MLflow: a file store for all runs of a results folder, or the user's own server."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness.trackers.base import beside, read, require_package

MOST_METRICS = 1000  # that one call of MLflow takes
MOST_PARAMS = 100
MOST_CHARACTERS = 6000  # of a parameter
STATUS = {"succeeded": "FINISHED", "interrupted": "KILLED"}  # else FAILED
KEY = "gradnet.run_id"
Item = TypeVar("Item")


@dataclass
class MLflow:
    """Tracker that writes runs to RESULTS/mlflow by experiment. Time stamps are emulated."""

    uri: str | None = None  # of a tracking server; null: the file store RESULTS/mlflow

    def check(self) -> None:
        require_package("mlflow", "mlflow")

    def write(self, run_dir: Path) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow asks since 3.7
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        run = read(run_dir)
        client = MlflowClient(self.uri or beside(run_dir, "mlflow").as_uri())
        known = client.get_experiment_by_name(run.experiment)
        place = known.experiment_id if known else client.create_experiment(run.experiment)
        for earlier in client.search_runs([place], f"tags.`{KEY}` = '{run.run_id}'"):
            client.delete_run(earlier.info.run_id)
        began_ms = int(1000 * run.started.timestamp())
        tags = {KEY: run.run_id, "gradnet.state": run.state}
        made = client.create_run(place, began_ms, tags, run.name).info.run_id
        settings = [Param(key, value[:MOST_CHARACTERS]) for key, value in run.settings.items()]
        for params in _parts(settings, MOST_PARAMS):
            client.log_batch(made, params=params)
        values = [
            Metric(name, value, began_ms + int(1000 * point.time_s), point.step)
            for point in run.points
            for name, value in point.values.items()
        ]
        for metrics in _parts(values, MOST_METRICS):
            client.log_batch(made, metrics=metrics)
        ended_ms = max((each.timestamp for each in values), default=began_ms)
        client.set_terminated(made, STATUS.get(run.state, "FAILED"), ended_ms)


def _parts(items: list[Item], most: int) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `most`."""
    yield from (items[begin : begin + most] for begin in range(0, len(items), most))
