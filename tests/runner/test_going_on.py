"""A run in virtual time that was interrupted goes on by the same command, as if it had not been."""

import json
import signal
import threading
from pathlib import Path

import pandas as pd
import pytest
import torch

from harness.config.scales import composed
from harness.config.settings import BadSetting, Settings
from harness.records import checkpoint, status
from harness.records.run_directory import read_events
from harness.runner import going_on, run, scratch
from harness.runner.progress import Display
from tests.virtual.runs import DETERMINED, SMALL, weights

STEPS, EVERY = 8, 3
HELD_S = 0.3
ASKED = ("network=simulated", "workers=2", f"steps={STEPS}", f"checkpoint_every={EVERY}")
ASKED += ("model.width=8", "network.sample_s=0.001", *SMALL, *DETERMINED)
LOCAL = ("parallel=local", "method=diloco", "parallel.h=2")
KINDS = {
    "topk": ("method=topk", "controller.density=0.1", "network.noise=0.1"),
    "dc2_da2": ("method=dc2_da2", "profile=square"),
    "contended": ("method=topk", "profile=contended", "profile.on_s=0.02", "profile.off_s=0.01"),
    "local": LOCAL,
    "pipeline": ("parallel=pipeline", "workers=2"),
}


def settings(folder: Path, *overrides: str) -> Settings:
    found, _ = composed([*ASKED, *overrides, f"results={folder}"])
    return found


def interrupted(asked: Settings, patched: pytest.MonkeyPatch, after: int) -> Path:
    """The directory of a run that a signal stopped after so many steps, or soon after them."""
    left, main = iter(range(after)), threading.main_thread()

    def told(display: Display) -> None:
        if next(left, None) is None:
            signal.pthread_kill(main.ident, signal.SIGINT)
            threading.Event().wait(HELD_S)  # a rank's thread: it is not to end meanwhile

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with patched.context() as here:
            here.setattr(Display, "update", told)
            with pytest.raises(KeyboardInterrupt):
                run.perform(asked)
    finally:
        signal.signal(signal.SIGINT, before)
    assert status.state(asked.run_dir()) == "interrupted"
    return asked.run_dir()


def resumptions(run_dir: Path) -> list[int]:
    return [each["step"] for each in read_events(run_dir) if each["event"] == "resumed"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_bit_for_bit_what_it_would_have_been(kind, tmp_path, monkeypatch):
    whole = run.perform(settings(tmp_path / "whole", *KINDS[kind])).run_dir
    asked = settings(tmp_path / "again", *KINDS[kind])
    for after in (5, 2):  # of the second life: it goes on from step 3, and does two more
        interrupted(asked, monkeypatch, after)
    done = run.perform(asked)
    assert done.state == "succeeded" and not done.skipped, done.error
    assert resumptions(done.run_dir) == [3, 3]
    for name in ("steps.csv", "evaluations.csv", "links.csv"):
        found, expected = (pd.read_csv(each / name) for each in (done.run_dir, whole))
        keys = [key for key in ("step", "rank", "time_s", "link") if key in found]
        one, other = (each.sort_values(keys, ignore_index=True) for each in (found, expected))
        pd.testing.assert_frame_equal(one, other, check_exact=name != "links.csv", atol=1, rtol=0)
    for name, value in weights(done.run_dir).items():
        assert torch.equal(value, weights(whole)[name]), name
    kept, judged = (
        json.loads((each / "summary.json").read_text()) for each in (done.run_dir, whole)
    )
    for each in ("steps", "time_s", "throughput", "sent_bytes", "mean_density", "final"):
        assert kept[each] == pytest.approx(judged[each]), each
    kinds = ("conditions", "flow_started", "flow_stopped", "checkpoint", "step_0", "rank_finished")
    told, wanted = (
        sorted(
            (each["event"], each["time_s"]) for each in read_events(where) if each["event"] in kinds
        )
        for where in (done.run_dir, whole)
    )
    assert told == wanted
    assert run.perform(asked).skipped


def test_a_run_on_a_disk_of_a_machine_goes_on_from_what_has_arrived(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path / "disk"))
    asked = settings(tmp_path / "results")
    interrupted(asked, monkeypatch, 5)
    done = run.perform(asked)
    assert done.state == "succeeded" and resumptions(done.run_dir) == [3]
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.parametrize(("damage", "told"), [
    ("model.pt", "is damaged"),
    ("environment.json", "was made with cpu another, and here it is "),
    ("steps.csv", "steps.csv has other columns"),
    ("links.csv", "No such file"),
])  # fmt: skip
def test_what_cannot_be_gone_on_from_is_told_and_begins_anew(
    damage, told, tmp_path, monkeypatch, capsys
):
    run_dir = interrupted(asked := settings(tmp_path), monkeypatch, 5)
    if damage == "model.pt":
        (run_dir / checkpoint.NAME / damage).write_bytes(b"")
    elif damage == "steps.csv":
        (run_dir / damage).write_bytes(b"")
    elif damage == "links.csv":
        (run_dir / damage).unlink()
    else:
        path = run_dir / damage
        path.write_text(json.dumps(json.loads(path.read_text()) | {"cpu": "another"}))
    done = run.perform(asked)
    assert done.state == "succeeded" and resumptions(run_dir) == []
    said = capsys.readouterr().err
    assert told in said and "it begins anew" in said


def test_a_set_that_was_about_to_be_replaced_is_gone_on_from(tmp_path, monkeypatch):
    """A crash between two renames leaves the last one as `checkpoint.before`."""
    run_dir = interrupted(asked := settings(tmp_path), monkeypatch, 5)
    (run_dir / checkpoint.NAME).rename(run_dir / checkpoint.BEFORE)
    (run_dir / checkpoint.PARTIAL).mkdir()
    assert run.perform(asked).state == "succeeded" and resumptions(run_dir) == [3]
    assert not (run_dir / checkpoint.BEFORE).exists()


@pytest.mark.parametrize("overrides", [
    ("checkpoint_every=0",),
    ("rerun=true",),
    ("parallel=server", "model=mlp", "~model.width"),
])  # fmt: skip
def test_others_begin_anew(overrides, tmp_path, monkeypatch):
    given = [each for each in ASKED if not (each == "model.width=8" and "model=mlp" in overrides)]
    kept = [each for each in overrides if each[0] != "~"]
    asked, _ = composed([*given, *kept, f"results={tmp_path}"])
    run_dir = interrupted(asked, monkeypatch, 5)
    assert run.perform(asked).state == "succeeded"
    assert resumptions(run_dir) == []


def test_over_packets_it_begins_anew(tmp_path, monkeypatch):
    run_dir = interrupted(asked := settings(tmp_path), monkeypatch, 5)
    packets = tuple(each for each in ASKED if each not in (*DETERMINED, "network=simulated"))
    other, _ = composed([*packets, f"results={tmp_path}"])
    assert going_on.found(run_dir, asked.run(), rerun=False) is not None
    assert going_on.found(run_dir, other.run(), rerun=False) is None


@pytest.mark.parametrize("name", ["events.jsonl", ".steps.csv.kept", "checkpoint.partial", "tmp"])
def test_it_goes_on_among_files_of_its_own_only(name, tmp_path, monkeypatch):
    """A link there is refused by name, and what it leads to stays as it is."""
    asked = settings(tmp_path / "results")
    run_dir = interrupted(asked, monkeypatch, after=5)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (run_dir / name).unlink(missing_ok=True)
    (run_dir / name).symlink_to(mine)
    with pytest.raises(BadSetting, match=f"got {run_dir / name}, which is a link"):
        run.perform(asked)
    assert mine.read_text() == "mine" and status.state(run_dir) == "interrupted"
    (run_dir / name).unlink()


@pytest.mark.parametrize("name", ["{}", ".{}.before", ".{}.failed"])
def test_a_run_is_written_to_no_linked_folder(name, tmp_path):
    asked = settings(tmp_path / "results")
    place = asked.run_dir().with_name(name.format(asked.run_dir().name))
    mine = tmp_path / "mine"
    mine.mkdir()
    place.parent.mkdir(parents=True)
    place.symlink_to(mine)
    with pytest.raises(BadSetting, match=f"got {place}, which is a link"):
        run.perform(asked)
    assert not list(mine.iterdir()) and place.is_symlink()
