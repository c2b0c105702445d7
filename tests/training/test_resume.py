"""Going on from a checkpoint: the same weights as without a stop, or a refusal that says why."""

import json
import shutil
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from harness.clock import Clock
from harness.config.settings import BadSetting, Settings, deciding
from harness.engine.exchange.collectives import Workers
from harness.engine.programs import build_loop
from harness.engine.training.rank_context import RankContext
from harness.engine.training.resume import resumed
from harness.engine.training.together import Machines
from harness.engine.training.worker import barrier_min, gather
from harness.records import checkpoint, columns
from harness.records.checkpoint import Writer, find, manifest_of
from harness.records.run_directory import Events, Step, read_events
from harness.validation import checked
from harness.workloads.data.loader import Batches
from tests.ranks import run_ranks
from tests.test_settings import settings

SIZE, STEPS, STOP = 2, 7, 3
TINY = (f"workers={SIZE}", "model=convnet", "dataset=digits", "batch_size=4", "eval_every=100")
METHODS = {
    "topk controller.density=0.1": ("bucket_mb=0", "residual_decay=0.5"),
    "topk compressor=carried_topk": (),
    "powersgd": ("bucket_mb=0.02",),
    "acp_sgd": ("accumulate=2",),
    "dgc": ("controller.stage_steps=2",),
    "onebit": (),
    "topk compressor=oktopk": ("compressor.threshold_period=2", "compressor.region_period=4"),
    "dct_dp": ("precision=bf16",),
    "demo": (),
    "allreduce compressor=int4": ("compressor.server_feedback=true", "error_feedback=true"),
    "topk compressor=lgreco": ("compressor.period=2",),
    "qsgd": ("error_feedback=true", "overlap=after_backward"),
    "allreduce": ("compressor=covap", "controller.density=0.25", "error_feedback=true"),
}


class Part(NamedTuple):
    """A run, or the first or second part of one."""

    run_dir: Path
    settings: Settings
    clock: Clock  # made before the ranks are forked


def part(folder: Path, name: str, *overrides: str, begins_s: float = 0.0) -> Part:
    run_dir = folder / name
    run_dir.mkdir()
    return Part(run_dir, settings(*TINY, *overrides), Clock(begins_s=begins_s))


def train(run: Part) -> None:
    """One rank's training, as harness.engine.training.worker has it, over gloo without shapers."""
    torch.manual_seed(run.settings["seed"])
    rank, group = dist.get_rank(), dist.new_group()
    workers = Workers(group)
    together = Machines(run.clock, barrier_min, gather, rank, workers.world_size)
    asked, cpu = run.settings.run(), torch.device("cpu")
    context = RankContext(
        run.run_dir, rank, rank == 0, run.clock, workers, cpu, together, asked.dataset
    )
    loop = build_loop(asked, context._replace(begin=resumed(asked.resume_from)))
    dist.barrier()
    if rank == 0:
        run.clock.start()
    dist.barrier()
    loop.run()
    loop.exchange.close()


def train_all(runs: list[Part]) -> None:
    for run in runs:
        train(run)


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    return torch.load(find(run_dir) / checkpoint.MODEL, weights_only=True)["model"]


def test_a_run_that_goes_on_has_the_weights_of_one_that_never_stopped(tmp_path: Path) -> None:
    runs, pairs = [], []
    for method, changes in METHODS.items():
        common = (*f"method={method}".split(), *changes)
        straight = part(tmp_path, f"{method} straight", *common, f"steps={STEPS}")
        first = part(tmp_path, f"{method} first", *common, f"steps={STOP}")
        go_on = f"resume_from='{first.run_dir}'"
        second = part(tmp_path, f"{method} second", *common, f"steps={STEPS}", go_on, begins_s=50.0)
        runs += [straight, first, second]
        pairs.append((straight, second))
    run_ranks(SIZE, train_all, runs)
    at = list(columns.recorded(Step)).index("time_s")
    for straight, second in pairs:
        expected, found = weights(straight.run_dir), weights(second.run_dir)
        for name, value in expected.items():
            assert torch.equal(value, found[name]), f"{second.run_dir.name}: {name}"
        rows = (second.run_dir / "steps.csv").read_text().splitlines()
        done = sorted(int(row.split(",")[0]) for row in rows)
        assert done == sorted([*range(STOP, STEPS)] * SIZE)
        assert all(float(row.split(",")[at]) > 50 for row in rows)
        manifest = manifest_of(find(second.run_dir))
        assert manifest.step == STEPS and manifest.time_s > 50


@pytest.mark.parametrize("first", [0, 1, 3, 4, 9])
def test_batches_begin_where_the_last_run_stopped(first: int) -> None:
    data = settings(*TINY).build("dataset").train()
    size = len(data) // (SIZE * 4)  # four steps an epoch
    whole = islice(iter(Batches(data, size, 1, SIZE, seed=5)), first, first + 6)
    rest = iter(Batches(data, size, 1, SIZE, seed=5, first=first))
    for (inputs, labels), (same, likewise) in zip(whole, rest, strict=False):
        assert torch.equal(inputs, same) and torch.equal(labels, likewise)


def writer(run_dir: Path, rank: int = 0, of: Settings | None = None) -> Writer:
    """Of a checkpoint by hand, of two ranks of one machine."""
    run_dir.mkdir(exist_ok=True)
    described = deciding((of or settings(*TINY)).config)
    other = checkpoint.rank_file(1 - rank)

    def gather(mine: dict[str, str]) -> list[dict[str, str]]:
        path = run_dir / checkpoint.PARTIAL / other
        return [mine, {other: checkpoint._save(path, {"rank": 1 - rank})}]

    name, events = checkpoint.rank_file(rank), Events(run_dir)
    return Writer(run_dir, name, True, gather, "cpu", described, events)


def write(run_dir: Path, step: int, of: Settings | None = None) -> Path:
    writer(run_dir, of=of).write(step, step / 10, {"model": {}}, {"rank": 0})
    return find(run_dir)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_checkpoint_replaces_the_last_and_is_found_by_either_name(tmp_path: Path) -> None:
    for step in (2, 4):
        folder = write(tmp_path, step)
        assert folder == find(folder) == tmp_path / "checkpoint"
        assert manifest_of(folder).step == step
        assert set(content(folder)) == {"model.pt", "rank0.pt", "rank1.pt", "manifest.json"}
        assert torch.load(folder / "model.pt", weights_only=True)["step"] == step
    assert [path.name for path in tmp_path.glob("checkpoint*")] == ["checkpoint"]
    assert [event["step"] for event in read_events(tmp_path)] == [2, 4]


class PowerCut(BaseException):
    """Nothing handles it."""


def test_an_end_at_any_moment_of_writing_leaves_a_whole_checkpoint(tmp_path, monkeypatch):
    """Every call that changes the directory is the last one, in turn."""
    write(tmp_path, 2)
    again = writer(tmp_path)
    real = {name: getattr(Path, name) for name in ("rename", "open", "mkdir")}
    left = 0  # calls before the end

    def until_the_end(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut
            return real[name](*arguments, **options)

        return call

    for calls in range(30):
        left = calls
        with monkeypatch.context() as patch, suppress(PowerCut):
            for name in real:
                patch.setattr(Path, name, until_the_end(name))
            again.write(4, 0.4, {"model": {}}, {"rank": 0})
        folder = find(tmp_path)
        manifest = manifest_of(folder)
        checkpoint.check_files(folder, manifest, ["rank0.pt", "rank1.pt", "model.pt"])
        assert manifest.step in (2, 4)
        if left >= 0:
            break
    assert calls > 5 and manifest.step == 4


def test_a_full_disk_costs_the_new_checkpoint_only(tmp_path: Path) -> None:
    before = content(write(tmp_path, 2))
    (tmp_path / checkpoint.PARTIAL).mkdir()
    (tmp_path / checkpoint.PARTIAL / "rank0.pt").symlink_to("/dev/full")
    large = {"residual": torch.zeros(100_000)}
    with pytest.raises(OSError, match=r"No space left on device.*rank0\.pt"):
        writer(tmp_path).write(4, 0.4, {"model": {}}, large)
    assert content(find(tmp_path)) == before


def refused(run_dir: Path, *overrides: str) -> str:
    with pytest.raises(BadSetting) as told:
        checked(settings(*TINY, "steps=9", f"resume_from={run_dir}", *overrides))
    return str(told.value)


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, 5, settings(*TINY, "method=topk", "controller.density=0.1"))
    same = (*TINY, "method=topk", "controller.density=0.1", f"resume_from={tmp_path}")
    checked(settings(*same, "steps=9"))
    free = ("profile=square", "emulation.dilation=2", "checkpoint_every=3", "experiment=another")
    checked(settings(*same, "steps=9", *free[:3]))
    for override, key in {
        "workers=4": "workers=2 (now 4)",
        "controller.density=0.2": "controller.density=0.1 (now 0.2)",
        "error_feedback=false": "error_feedback=True (now False)",
        "model=mlp_as_resnet20": "model.",
        "compressor=threshold_topk": "compressor._target_='compressors.topk.TopK'",
        "accumulate=2": "accumulate=1 (now 2)",
        "optimizer.momentum=0.5": "optimizer.momentum=0.9 (now 0.5)",
    }.items():
        assert key in refused(tmp_path, "method=topk", "controller.density=0.1", override), override
    said = refused(tmp_path, "method=topk", "controller.density=0.1", "steps=5")
    assert "steps must be more, got 5" in said
    replay = refused(tmp_path, "method=topk", "controller.density=0.1", "emulation.compute=replay",
                     "model=convnet")  # fmt: skip
    assert "resume_from" in replay


def test_a_checkpoint_of_an_older_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """In one line, before anything starts, and not by the places of its classes."""
    manifest = write(tmp_path, 5) / checkpoint.MANIFEST
    older = manifest.read_text().replace("harness.workloads.data.", "harness.data.")
    assert older != manifest.read_text()
    manifest.write_text(older)
    said = refused(tmp_path)
    assert "is of an older version and cannot be read: begin anew with resume_from=null" in said
    assert "\n" not in said and "_target_" not in said


def test_what_is_missing_or_damaged_is_refused_by_name(tmp_path: Path) -> None:
    assert "with a whole checkpoint" in refused(tmp_path / "nowhere")
    whole = write(tmp_path / "run", 5)
    for name in content(whole):
        copy = tmp_path / f"without {name}"
        shutil.copytree(whole, copy / "checkpoint")
        (copy / "checkpoint" / name).unlink()
        assert ("whole checkpoint" if "json" in name else f"has no {name}") in refused(
            Path(f"'{copy}'")
        )
        shutil.copy(whole / name, copy / "checkpoint" / name)
        data = bytearray((whole / name).read_bytes())
        data[len(data) // 2] ^= 0x55
        (copy / "checkpoint" / name).write_bytes(data[: 20 if "json" in name else None])
        assert f"{name} is damaged" in refused(Path(f"'{copy}'"))


def test_the_run_id_depends_on_what_is_gone_on_from_and_not_on_where_it_is(tmp_path: Path) -> None:
    def identity(run_dir: Path) -> str:
        return json.dumps(settings(*TINY, f"resume_from={run_dir}").identity(), sort_keys=True)

    write(tmp_path / "a", 5)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    first = identity(tmp_path / "a")
    assert first == identity(tmp_path / "b") == identity(tmp_path / "a" / "checkpoint")
    assert first != json.dumps(settings(*TINY).identity(), sort_keys=True)
    changed = writer(tmp_path / "b")
    changed.write(5, 0.5, {"model": {}}, {"rank": 7})
    assert first != identity(tmp_path / "b")
