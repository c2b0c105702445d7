"""Checkpoints that others made: a run that is to go on from one does, or ends in one line."""

import io
import json
import pickle
import random
import shutil
import zipfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from harness.engine.training.worker import report
from harness.records import checkpoint, status
from harness.records.checkpoint import BadCheckpoint, refusing
from harness.records.run_directory import Events, read_events
from harness.runner.run import Outcome, failure_report
from tests.training.test_state_dict_laws import changed, places, replaced
from tests.virtual.runs import simulated, weights

SMALL = ("workers=2", "batch_size=4", "model.width=8", "eval_every=100")
LEARNING = {"topk": ("method=topk", "controller.density=0.1"),
            "adamw": ("method=dct_dp", "optimizer.kind=adamw"),
            "dgc": ("method=dgc", "controller.stage_steps=2"),
            "local": ("method=diloco", "parallel=local", "parallel.h=2")}  # fmt: skip
CPU = torch.device("cpu")


class Trained(NamedTuple):
    """A run of two steps with its checkpoint, and the settings that made it."""

    run_dir: Path
    chosen: tuple[str, ...]

    def content(self, name: str) -> Any:
        return checkpoint.load(self.run_dir / "checkpoint", name, CPU)


def trained_by(name: str, folder: Path) -> Trained:
    chosen = (*SMALL, *LEARNING[name])
    run_dir = simulated(folder / name, *chosen, "steps=2")
    assert status.state(run_dir) == "succeeded", (run_dir / "status.json").read_text()
    return Trained(run_dir, chosen)


@pytest.fixture(scope="module", params=LEARNING)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained_by(request.param, tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def topk(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained_by("topk", tmp_path_factory.mktemp("topk"))


def gone_on(trained: Trained, name: str, content: Any, folder: Path) -> str:
    """The last line of a run that goes on from a checkpoint whose file `name` has `content`.

    "" if it succeeds; it never shows a traceback.
    """
    crafted = folder / "crafted"
    shutil.rmtree(crafted, ignore_errors=True)
    shutil.copytree(trained.run_dir / "checkpoint", crafted)
    if isinstance(content, bytes):
        (crafted / name).write_bytes(content)
    else:
        torch.save(content, crafted / name)
    manifest = json.loads((crafted / checkpoint.MANIFEST).read_text())
    manifest["files"][name] = checkpoint._digest(crafted / name)
    (crafted / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    asked = (*trained.chosen, "steps=3", f"resume_from='{crafted}'")
    run_dir = simulated(folder / "on", *asked)
    ended = json.loads((run_dir / "status.json").read_text())
    if ended["state"] == "succeeded":
        return ""
    report = failure_report(Outcome(run_dir, ended["state"], ended["error"], False))
    assert "Traceback" not in report and "\n" not in ended["error"], report
    return str(ended["error"]).removeprefix("rank 0: ")


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.faults)])
def test_a_run_goes_on_from_a_mutated_checkpoint_or_ends_in_a_line(trained, count, tmp_path):
    assert gone_on(trained, "rank0.pt", trained.content("rank0.pt"), tmp_path) == ""
    dice, told = random.Random(count), Counter[str]()
    for number in range(count):
        name = ("rank0.pt", "model.pt")[number % 3 == 2]
        content = trained.content(name)
        part = dice.choice([path for path in places(content) if len(path) == 1])
        path = dice.choice([path for path in places(content) if path[:1] == part])
        mutated = replaced(content, path, partial(changed, dice=dice))
        told["refused" if gone_on(trained, name, mutated, tmp_path) else "went on"] += 1
    print(f"{count} mutated checkpoints of {trained.run_dir.name}: {dict(told)}")


def residual(content: Any, change: Any) -> Any:
    """`content` of a rank, whose first tensor of error feedback is changed."""
    feedback = content["reduction"]["feedback"]
    path = next(path for path in places(feedback) if _is_residual(feedback, path))
    return replaced(content, ("reduction", "feedback", *path), change)


def _is_residual(kept: Any, path: tuple[Any, ...]) -> bool:
    for key in path:
        kept = kept[key]
    return isinstance(kept, torch.Tensor) and kept.is_floating_point()


@pytest.mark.parametrize("change", [
    lambda kept: kept[:1].clone(),
    lambda kept: torch.cat([kept, kept]),
    torch.Tensor.double,
    torch.Tensor.bfloat16,
    lambda kept: torch.full_like(kept, float("inf")),
    lambda kept: kept[:1].clone().expand(kept.numel()),
])  # fmt: skip
def test_a_residual_of_another_form_names_its_parameters(change, topk, tmp_path):
    told = gone_on(topk, "rank0.pt", residual(topk.content("rank0.pt"), change), tmp_path)
    assert told.startswith("feedback") and "bias" in told, told


def test_a_residual_of_no_parameter_is_refused_by_name(topk: Trained, tmp_path: Path) -> None:
    content = topk.content("rank0.pt")
    feedback = content["reduction"]["feedback"]
    for by_names in (feedback["_buckets"], feedback["_sizes"]):
        first, *others = next(iter(by_names))
        by_names["elsewhere", *others] = by_names.pop((first, *others))
    told = gone_on(topk, "rank0.pt", content, tmp_path)
    assert "'elsewhere', which the model has not: its first is '" in told


@pytest.mark.parametrize("settings", [{"maximize": True}, {"lr": 9.0, "weight_decay": 5.0}])
def test_the_settings_of_the_optimizer_are_those_of_the_configuration(settings, topk, tmp_path):
    content = topk.content("model.pt")
    assert gone_on(topk, "model.pt", content, tmp_path / "as it was") == ""
    for group in content["optimizer"]["param_groups"]:
        group |= settings
    assert gone_on(topk, "model.pt", content, tmp_path / "crafted") == ""
    ends = [weights(tmp_path / name / "on") for name in ("as it was", "crafted")]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


@pytest.mark.parametrize("change", [lambda kept: kept[:1], torch.Tensor.double])
def test_momentum_of_another_form_names_its_place(change, topk, tmp_path):
    content = topk.content("model.pt")
    path = ("optimizer", "state", 0, "momentum_buffer")
    told = gone_on(topk, "model.pt", replaced(content, path, change), tmp_path)
    assert told.startswith("optimizer.state[0]['momentum_buffer'] is a float32 [")


def repacked(content: Any, pickled: bytes | None = None, how: int = zipfile.ZIP_STORED) -> bytes:
    """A file as torch.save writes it, with another pickle, or compressed."""
    kept, file = io.BytesIO(), io.BytesIO()
    torch.save(content, kept)
    with zipfile.ZipFile(kept) as source, zipfile.ZipFile(file, "w", how) as target:
        for member in source.namelist():
            has = source.read(member)
            target.writestr(member, pickled if pickled and member.endswith("data.pkl") else has)
    return file.getvalue()


TUPLES = b"\x80\x02})" + 300_000 * b"\x85" + b"Ns."  # as a key, whose hash goes through them all
LISTS = b"\x80\x02}K\x01" + 300_000 * b"]" + 299_999 * b"a" + b"s."
FILES = {
    "cut short": lambda content: repacked(content)[:-300],
    "empty": lambda content: b"",
    "no archive": lambda content: pickle.dumps(content["random"].tolist()),
    "a bomb": lambda content: repacked({"zeros": torch.zeros(10**6)}, how=zipfile.ZIP_DEFLATED),
    "tuples in tuples": lambda content: repacked({}, TUPLES),
    "lists in lists": lambda content: repacked({}, LISTS),
    "a program": lambda content: repacked({}, b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."),
    "a list": lambda content: repacked([1]),
    "nothing": lambda content: repacked({}),
}


@pytest.mark.parametrize("damage", FILES)
def test_a_damaged_file_is_refused_by_its_name(damage: str, topk: Trained, tmp_path: Path) -> None:
    told = gone_on(topk, "rank0.pt", FILES[damage](topk.content("rank0.pt")), tmp_path)
    assert "damaged" in told and "crafted" in told and len(told) < 600, told


def test_weights_that_are_not_finite_are_refused_by_name(topk: Trained, tmp_path: Path) -> None:
    content = topk.content("model.pt")
    name = next(iter(content["model"]))
    content["model"][name].view(-1)[0] = float("nan")
    told = gone_on(topk, "model.pt", content, tmp_path)
    assert told == f"model.{name} must be finite, and the checkpoint has NaN or infinity"


def test_a_rank_reports_a_refusal_in_a_line_and_keeps_its_traceback_in_its_log(tmp_path, capsys):
    try:
        with refusing("rank0.pt"):
            raise KeyError("several\nlines")
    except BadCheckpoint as refusal:
        report(Events(tmp_path), None, 0, refusal)  # type: ignore[arg-type]
    [event] = read_events(tmp_path)
    assert event["traceback"] == "" and "Traceback" in capsys.readouterr().err
    assert event["error"].startswith("rank0.pt is damaged: KeyError: ")
    assert len(event["error"].splitlines()) == 1
