"""Trackers: one run is written by each, and read back by the tracker's own reader."""

import struct
from pathlib import Path

import pandas as pd
import pytest

from harness.config.scales import composed
from harness.config.search_path import choices
from harness.config.settings import BadSetting
from harness.runner import run as runner
from harness.trackers import base
from harness.validation import checked

pytestmark = pytest.mark.timeout(600)
SCENE = (
    "network=simulated", "workload=pace_digits", "model.hidden=[8]", "workers=2", "steps=5",
    "eval_every=2", "method=dc2_da2", "report=false", "seed=3", "network.compress_scale=0",
)  # fmt: skip
TRACKERS = sorted(choices("tracker"))
FLOAT32 = 1e-6  # relative
BLOCK, HEADER = 32768, 7  # bytes, of the log that Weights & Biases writes: LevelDB's


def settings(tracker: str, results: Path, *more: str):
    return composed([*SCENE, f"tracker={tracker}", f"results={results}", *more])[0]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The directory of one run that every tracker has written."""
    results = tmp_path_factory.mktemp("tracked") / "results"
    outcomes = [runner.perform(settings(name, results)) for name in TRACKERS]
    assert [each.skipped for each in outcomes] == [False] + [True] * (len(TRACKERS) - 1)
    assert {each.state for each in outcomes} == {"succeeded"}
    return outcomes[0].run_dir


def expected(run_dir: Path) -> dict[tuple[str, int], float]:
    """What the csv files hold, by name and step."""
    steps = pd.read_csv(run_dir / "steps.csv").drop(columns=["rank", "controller"])
    means = steps.groupby("step").mean()
    found = {
        (f"step/{name}", int(step)): float(value)
        for name in means
        for step, value in means[name].dropna().items()
    }
    for row in pd.read_csv(run_dir / "evaluations.csv").itertuples():
        found[f"evaluation/{row.metric}", int(row.step)] = float(row.value)
    assert {"step/loss", "step/comm_s", "step/density"} <= {name for name, _ in found}
    assert sum(name == "evaluation/accuracy" for name, _ in found) >= 2
    return found


def test_tensorboard_has_what_the_csv_has(written):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    [folder] = (written.parent.parent / "tensorboard/adhoc").iterdir()
    assert folder.name.startswith("dc2_da2") and folder.name.endswith(f"-{written.name}")
    events = EventAccumulator(str(folder))
    events.Reload()
    scalars = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    found = {(name, each.step): each.value for name, of in scalars.items() for each in of}
    assert found == pytest.approx(expected(written), rel=FLOAT32)
    clock = {each.step: each.wall_time for each in scalars["step/time_s"]}
    took = {step: found["step/time_s", step] - found["step/time_s", 0] for step in clock}
    assert {step: at - clock[0] for step, at in clock.items()} == pytest.approx(took, abs=1e-4)


def test_mlflow_has_what_the_csv_has(written):
    from mlflow import MlflowClient

    client = MlflowClient((written.parent.parent / "mlflow").as_uri())
    [run] = client.search_runs([client.get_experiment_by_name("adhoc").experiment_id])
    assert run.info.status == "FINISHED" and run.data.tags["gradnet.run_id"] == written.name
    assert run.data.params["controller._target_"] == '"controllers.dc2.DA2"'
    found = {
        (name, each.step): each.value
        for name in run.data.metrics
        for each in client.get_metric_history(run.info.run_id, name)
    }
    assert found == pytest.approx(expected(written), rel=1e-12)


def test_wandb_has_what_the_csv_has(written):
    folder = written.parent.parent / "wandb"
    [file] = folder.glob(f"offline-run-*-{written.name}/run-{written.name}.wandb")
    records = list(datastore(file))
    [run] = [each.run for each in records if each.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.project, run.run_group) == (written.name, "gradnet", "adhoc")
    found = {}
    for record in records:
        if record.WhichOneof("record_type") == "history":
            row = {each.key or "/".join(each.nested_key): each for each in record.history.item}
            for name in row:
                if "/" in name:
                    found[name, record.history.step.num] = float(row[name].value_json)
    assert found == pytest.approx(expected(written), rel=1e-12)


def datastore(path: Path):
    """The records of an offline run: a log of blocks, in each of which are whole pieces."""
    from wandb.proto import wandb_internal_pb2

    content = path.read_bytes()
    assert content[:4] == b":W&B"
    at, parts = HEADER, b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + HEADER])
        parts += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def test_a_tracker_writes_once_and_again_where_the_run_was_done_again(written):
    results = written.parent.parent
    [before] = (results / "tensorboard/adhoc").iterdir()
    files = [each.name for each in before.iterdir()]
    csv = (written / "steps.csv").read_bytes()
    assert runner.perform(settings("wandb", results)).skipped  # the one that was last
    runner.perform(settings("tensorboard", results, "rerun=true"))
    runner.perform(settings("mlflow", results))
    [after] = (results / "tensorboard/adhoc").iterdir()
    assert after == before and [each.name for each in after.iterdir()] != files
    assert (written / "steps.csv").read_bytes() == csv


def test_a_run_does_not_depend_on_its_tracker(tmp_path):
    asked = [settings(name, tmp_path) for name in TRACKERS]
    assert len(asked) == 4
    assert len({each.run_id() for each in asked}) == 1
    assert len({each["method.name"] for each in asked}) == 1
    assert len({each.run().label for each in asked}) == 1


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_package_that_is_missing_is_told_before_anything_starts(name, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "find_spec", lambda package: None)
    with pytest.raises(BadSetting, match=rf"^tracker={name} needs .*'gradnet\[{name}\]'") as said:
        checked(settings(name, tmp_path))
    assert "\n" not in str(said.value)
    checked(settings("csv", tmp_path))


def test_what_cannot_be_written_is_told_and_the_run_is_whole(tmp_path):
    (tmp_path / "tensorboard").write_text("in the way")
    with pytest.raises(BadSetting, match=r"^tracker: \S+ was not written: "):
        runner.perform(settings("tensorboard", tmp_path, "steps=2"))
    (tmp_path / "tensorboard").unlink()
    assert runner.perform(settings("tensorboard", tmp_path, "steps=2")).skipped
    assert list((tmp_path / "tensorboard/adhoc").iterdir())
