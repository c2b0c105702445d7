"""What TensorBoard's event files tell, and what is not believed of them."""

import os
import socket
import struct
from math import isnan
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from harness.around import event_files
from harness.around.event_files import EventFiles, Scalar, take
from harness.around.settings import LOSS, Command, composed
from harness.around.told import ToldStep, ToldSteps
from harness.config.settings import BadSetting

BEGAN_S = 1e9  # wall time
FILE = "events.out.tfevents.1.node0.1"


def command(metrics: str = LOSS, samples: int | None = None) -> Command:
    return Command(("x",), "first_byte", metrics, "runs", samples, None)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SummaryWriter:
    """Of node 0."""
    monkeypatch.setattr(socket, "gethostname", lambda: "node0")
    return SummaryWriter(str(tmp_path / "deep" / "er"))


def taken(scalars: list[Scalar], of: Command) -> tuple[list[ToldStep], ToldSteps]:
    """Steps of `scalars`, in order, and what did not count."""
    steps = ToldSteps(of)
    take(steps, scalars, lambda wall_s: wall_s - BEGAN_S)
    return steps.finish(100.0, 1.0), steps


def test_scalars_become_steps_at_their_times(tmp_path: Path, writer: SummaryWriter) -> None:
    files = EventFiles(tmp_path / "deep")  # whose folder has a file already, of before
    with SummaryWriter(str(tmp_path / "deep" / "er")) as late:
        late.add_histogram("weights", __import__("torch").ones(9), 10)
        late.add_scalar("train/loss", 9.0, 5, BEGAN_S - 1)  # before the clock started
        late.add_scalar("train/loss", 0.5, 10, BEGAN_S + 1)
        late.add_scalar("eval/accuracy", 0.25, 10, BEGAN_S + 2)
        late.add_scalar("train/loss", 0.125, 20, BEGAN_S + 3)
        late.add_scalar("eval/accuracy", 0.5, 30, BEGAN_S + 4)
        late.add_scalar("lr", 0.1, 40, BEGAN_S + 5)
    both = command(LOSS + r"|accuracy (?P<accuracy>\S+)", samples=8)
    made, told = taken(files.scalars(), both)
    assert [(step.time_s, step.step, step.samples) for step in made] == [
        (1.0, 10, 80), (3.0, 20, 80), (4.0, 30, 80),
    ]  # fmt: skip
    assert [step.loss for step in made[:2]] == [0.5, 0.125] and isnan(made[2].loss)
    evaluated = [(each.step, each.time_s, each.value) for each in told.evaluations]
    assert evaluated == [(11, 2.0, 0.25), (31, 4.0, 0.5)]
    assert [lines for lines, _ in told.uncounted.values()] == [1]
    by_line = Command(("x",), "begin", both.metrics, "runs", 8, None)
    assert taken(files.scalars(), by_line)[1].uncounted == {}  # it is told where to begin


def test_scalars_that_cannot_be_counted_are_told() -> None:
    nan = float("nan")
    crafted = [Scalar("loss", -1, 1.0, BEGAN_S), Scalar("loss", 1, 1.0, nan),
               Scalar("samples", 2, nan, BEGAN_S), Scalar("named", 3, 1.0, BEGAN_S),
               Scalar("loss", 4, nan, BEGAN_S)]  # fmt: skip
    pattern = r"loss (?P<loss>\S+)|samples (?P<samples>\S+)|(?P<named>named)"
    [only], told = taken(crafted, command(pattern))
    assert only.step == 4 and isnan(only.loss)  # a training that diverges says so
    assert sum(lines for lines, _ in told.uncounted.values()) == 4


def test_a_tag_that_counts_anew_in_every_epoch_is_numbered_on() -> None:
    epochs = [(epoch, step) for epoch in range(4) for step in range(5)]
    losses = [
        Scalar("loss", step, 1.0, BEGAN_S + 5 * epoch + step + more)
        for epoch, step in epochs
        for more in (0.0, 0.5)
    ]
    scalars = [each if n % 2 else each._replace(tag="lr") for n, each in enumerate(losses)]
    accuracies = [Scalar("accuracy", epoch, 0.5, BEGAN_S + 5 * epoch + 4.9) for epoch in range(4)]
    scalars = sorted(scalars + accuracies, key=lambda each: each.wall_s)
    metrics = LOSS + r"|lr (?P<lr>\S+)|accuracy (?P<accuracy>\S+)"
    made, told = taken(scalars, command(metrics))
    assert [step.step for step in made] == list(range(20)) and told.uncounted == {}
    at = [each.step for each in told.evaluations if each.metric == "accuracy"]
    assert at == [5, 10, 15, 20]  # by epochs, not by steps


def test_of_several_losses_the_one_of_most_steps_counts() -> None:
    """With a pattern of one's own that is not believed."""
    scalars = [Scalar("train/loss", step, 1.0, BEGAN_S + step) for step in range(4)]
    scalars += [Scalar("train/train_loss", 3, 9.0, BEGAN_S + 4)]
    made, told = taken(scalars, command())
    assert [step.loss for step in made] == [1.0] * 4 and told.uncounted == {}
    _, told = taken(scalars, command(r"loss (?P<loss>\S+)"))
    assert list(told.uncounted.values()) == [(1, "train/train_loss 9.0")]


def test_a_tensor_without_dimensions_is_a_scalar_and_another_is_none() -> None:
    from tensorboard.compat.proto.event_pb2 import Event

    event = Event(step=3, wall_time=BEGAN_S)
    event.summary.value.add(tag="a").tensor.float_val.append(0.5)
    packed = event.summary.value.add(tag="b").tensor
    packed.dtype, packed.tensor_content = 1, struct.pack("<f", 0.25)
    endless = event.summary.value.add(tag="c").tensor  # which numpy would fill with one value
    endless.float_val.append(1.0)
    endless.tensor_shape.dim.add(size=1 << 40)
    record = event.SerializeToString()
    content = event_files.HEADER.pack(len(record), 0) + record + bytes(4)
    torn = event_files.HEADER.pack(1 << 62, 0) + b"more"
    found = list(event_files._scalars(content + content + torn))
    assert [(each.tag, each.value) for each in found] == [("a", 0.5), ("b", 0.25)] * 2


def test_others_files_links_and_pipes_are_not_read(tmp_path: Path, writer: SummaryWriter) -> None:
    writer.add_scalar("loss", 1.0, 0)
    writer.close()
    [real] = (tmp_path / "deep" / "er").iterdir()
    folder = tmp_path / "new"
    files = EventFiles(folder)  # not there yet
    folder.mkdir()
    os.mkfifo(folder / FILE)
    (folder / FILE.replace("1.node0", "2.node0")).symlink_to(real)
    (folder / FILE.replace("node0", "node1")).write_bytes(real.read_bytes())
    (folder / "notes.node0.txt").write_bytes(real.read_bytes())
    (folder / FILE.replace("1.node0", "3.node0")).write_bytes(b"\x01" * 99)
    assert files.scalars() == []


def test_more_than_a_program_writes_is_not_read(tmp_path, monkeypatch):
    files = EventFiles(tmp_path)
    (tmp_path / FILE).write_bytes(bytes(100))
    assert files.scalars() == []
    monkeypatch.setattr(event_files, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match="have over 100 bytes"):
        files.scalars()
    monkeypatch.setattr(event_files, "MOST_FILES", 0)
    with pytest.raises(ValueError, match="has 1 new event files, over 0"):
        files.scalars()


@pytest.mark.parametrize(("said", "why"), [
    (("tensorboard=",), "tensorboard must be a folder"),
    (("tensorboard=pyproject.toml",), "tensorboard must be a folder, which may be made yet"),
    (("tensorboard=runs", r"metrics=(?P<step>\d+)"), "metrics must have no group step with"),
])  # fmt: skip
def test_what_event_files_cannot_be_asked_for_is_told(said: tuple[str, ...], why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        composed([*said, "--", "true"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.around.settings.find_spec", lambda name: None)
        with pytest.raises(BadSetting, match=r"pip install 'gradnet\[tensorboard\]'"):
            composed(["tensorboard=runs", "--", "true"])
