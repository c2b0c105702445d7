"""Trained once, timed on many networks: as if each had trained; what is damaged is not used."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from harness.config.run import Run
from harness.config.settings import Settings
from harness.config.typed import leaves
from harness.records import manifest, status
from harness.records.run_directory import CURVE, read_json
from harness.runner import run as runner
from harness.virtual.curve import key_of
from harness.virtual.network import Simulated
from harness.virtual.run import simulate
from profiles.contended import Contended
from profiles.loss_bursts import LossBursts
from profiles.markov import Markov
from profiles.static import Static
from tests.test_keys import changed, other
from tests.virtual.runs import prepare, settings_of

METHODS = {
    "dense": "method=allreduce",
    "top-k": "method=topk controller.density=0.1",
    "per tensor": "method=topk controller.density=0.1 bucket_mb=0",
    "after backward": "method=topk controller.density=0.1 overlap=after_backward",
    "DGC": "method=dgc controller.density=0.05",
    "QSGD": "method=qsgd",
    "PowerSGD": "method=powersgd",
    "ACP-SGD": "method=acp_sgd",
    "COVAP": "method=topk compressor=covap controller.density=0.25",
    "Ok-topk": "method=topk compressor=oktopk controller.density=0.1",
    "warm-up": "method=topk controller=warmup controller.stages=3 controller.stage_steps=2",
    "norms": "method=accordion controller.window=2",
    "LocalSGD": "method=localsgd parallel.h=2",
    "DiLoCo": "method=diloco parallel.h=3 parallel.warmup_rounds=1 eval_every=2",
    "streaming": "method=diloco_streaming parallel.h=4 parallel.fragments=2 parallel.lag=1 "
    "eval_every=2",
    "streaming, lag past the end": "method=diloco_streaming parallel.h=8 parallel.fragments=2 "
    "parallel.lag=3 eval_every=1",
    "SparseLoCo": "method=sparseloco parallel.h=2",
    "local, batch norm, QSGD": "method=localsgd parallel.h=2 compressor=qsgd model=resnet20",
    "local, warm-up": "method=localsgd parallel.h=1 compressor=topk controller=warmup "
    "controller.stages=3 controller.stage_steps=2",
}
SCENE = ("workers=3", "steps=7", "emulation.compute=paced", "network/device=v100",
         "bucket_mb=0.02", "reuse_training=true", "checkpoint_every=null",
         "network.sample_s=0.01")  # fmt: skip
CONFIG = Settings({})  # of config.yaml, which nothing here reads
TABLES = ("steps.csv", "evaluations.csv", "links.csv", "timeline.csv", "events.jsonl")

static = st.builds(Static, st.floats(0.5, 500))
profiles = st.one_of(
    static,
    st.builds(Markov, good_mbit=st.just(100.0), bad_mbit=st.floats(1, 90), seed=st.integers(0, 99),
              mean_good_s=st.floats(0.1, 1), mean_bad_s=st.floats(0.1, 1)),
    st.builds(LossBursts, static, mean_gap_s=st.just(0.5), mean_burst_s=st.just(0.5),
              loss=st.just(0.05), seed=st.integers(0, 99)),
    st.builds(Contended, static, st.integers(1, 4), on_s=st.just(0.3), off_s=st.just(0.3)),
)  # fmt: skip
networks = st.builds(Simulated, alpha_s=st.floats(0, 0.01), noise=st.floats(0, 0.5),
                     latency_noise=st.floats(0, 1), wake_s=st.floats(0, 0.001),
                     sample_s=st.just(0.01))  # fmt: skip


def done(folder: Path, run: Run) -> Path:
    """The directory of `run`, made in virtual time."""
    prepare(folder, CONFIG)
    simulate(folder, run, lambda: None)
    assert status.state(folder) == "succeeded", read_json(folder / "status.json")
    return folder


def curve_of(run_dir: Path) -> Any:
    """What a run says of the curve that it rests on; None: it trained."""
    environment, summary = (
        read_json(run_dir / name) for name in ("environment.json", "summary.json")
    )
    assert environment and summary and environment.get("curve") == summary.get("curve")
    return summary.get("curve")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results, below which curves are looked for."""
    return tmp_path / "results"


@pytest.mark.parametrize("method", METHODS)
def test_what_is_timed_is_what_would_have_been_trained(method, results, tmp_path):
    run = settings_of(*SCENE, *METHODS[method].split()).run()
    trained = done(results / "here/trained", run)
    assert curve_of(trained) is None and (trained / CURVE).stat().st_size

    @examples(max_examples=3, deadline=None, phases=[Phase.generate])
    @given(profile=profiles, network=networks)
    def check(profile: Any, network: Simulated) -> None:
        elsewhere = replace(
            run, profile=profile, network=replace(network, device=run.network.device)
        )
        timed = done(results / "there/timed", elsewhere)
        again = done(tmp_path / "alone/here/trained", replace(elsewhere, reuse_training=False))
        digest = read_json(trained / "status.json")["files"][CURVE]["sha256"]
        assert curve_of(timed) == {"run": "here/trained", "sha256": digest}
        assert curve_of(again) is None and not (timed / CURVE).exists()
        for name in TABLES:
            assert (timed / name).read_text() == (again / name).read_text(), name

    check()


def test_a_target_ends_both(results: Path) -> None:
    run = settings_of(*SCENE, "target.value=0.01", "target.ends_run=true").run()
    trained = done(results / "here/trained", run)
    timed = done(results / "here/timed", replace(run, profile=Static(3.0)))
    assert curve_of(timed) and curve_of(trained) is None
    whole, short = ((folder / "evaluations.csv").read_text() for folder in (trained, timed))
    assert whole.count("accuracy") == short.count("accuracy") == 1


TRAINS = {
    "a controller that reacts": "method=dc2_da2",
    "steps that are measured": "emulation.compute=measured",
    "stages": "parallel=pipeline workers=4 compressor=dense model=mlp",
    "messages": "method=noloco parallel.h=1",
    "a horizon that is chosen": "method=diloco controller=cu_target controller.agree=min "
    "parallel.h=1",
    "a watch": "+watch._target_=harness.config.watch.Watch",
    "no wish": "reuse_training=false",
}


@pytest.mark.parametrize("why", TRAINS)
def test_what_depends_on_the_network_trains(why: str, results: Path) -> None:
    run = settings_of(*SCENE, "steps=2", *TRAINS[why].split()).run()
    for number in range(2):
        folder = done(results / "here" / str(number), run)
        assert curve_of(folder) is None and not (folder / CURVE).exists()


def test_checkpoints_on_the_way_are_made_by_training(results: Path) -> None:
    run = settings_of(*SCENE, "steps=4").run()
    done(results / "here/a", run)
    saving = done(results / "here/b", replace(run, checkpoint_every=2))
    assert curve_of(saving) is None and (saving / "checkpoint").exists()
    assert curve_of(done(results / "here/c", run))


def test_training_depends_on_every_key_but_those_of_the_clock() -> None:
    base = settings_of(
        *SCENE, "workers=4", "network.repeat=9", "method=topk", "controller.density=0.1"
    )
    only_times = base.build("network").only_times
    expected = base.training(only_times)
    free = set()
    for path, value in leaves(base.config):
        key = ".".join(path)
        if changed(base, key, other(key, value)).training(only_times) == expected:
            free.add(key)
    shown = {"results", "plan", "draw", "rerun", "report", "reuse_training", "experiment"}
    shown |= {"method.name"}
    shown |= {"network_seed"} & set(base.config) | {"tracker._target_"}
    shown |= {"scale.name", "target.value", "target.metric", "checkpoint_every"}
    shown |= {"emulation.priority"}
    shown |= {f"timeouts.{name}_s" for name in ("start", "exchange", "stop", "run")}
    of_network = {f"network.{name}" for name in only_times & set(base["network"])}
    of_profile = {".".join(path) for path, _ in leaves(base.config) if path[0] == "profile"}
    assert free == shown | of_network | of_profile


def test_another_code_trains_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    run = settings_of(*SCENE).run()
    before = key_of(run)
    assert key_of(run) == before
    monkeypatch.setattr("harness.virtual.curve._code", lambda classes: "another")
    assert key_of(run) != before


def tell(folder: Path, **changes: Any) -> None:
    told = read_json(folder / "status.json")
    assert told
    (folder / "status.json").write_text(json.dumps(told | changes))


def fit(folder: Path) -> None:
    """Make a manifest of the files as they are, as who can write every file can."""
    tell(folder, files=manifest.of(folder))


def lines_of(folder: Path) -> list[str]:
    return (folder / CURVE).read_text().splitlines()


def flip(folder: Path) -> None:
    text = (folder / CURVE).read_bytes()
    (folder / CURVE).write_bytes(text[:-2] + bytes([text[-2] ^ 1]) + text[-1:])


def another_loss(folder: Path) -> None:
    text = (folder / "steps.csv").read_text()
    (folder / "steps.csv").write_text(text.replace("2.", "1.", 1))


def fewer_steps(folder: Path) -> None:
    (folder / CURVE).write_text("\n".join(lines_of(folder)[:-1]) + "\n")
    fit(folder)


def a_pipe(folder: Path) -> None:
    (folder / CURVE).unlink()
    os.mkfifo(folder / CURVE)


def failed(folder: Path) -> None:
    tell(folder, state="failed")


def inside(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change the first exchange, and the manifest with it."""

    def damage(folder: Path) -> None:
        key, first, *rest = lines_of(folder)
        told = json.loads(first)
        changed = change(told)
        text = [key, json.dumps(told if changed is None else changed), *rest]
        (folder / CURVE).write_text("\n".join(text) + "\n")
        fit(folder)

    return damage


def of_first_op(told: dict[str, Any], compress_s: Any = None, call: Any = None) -> None:
    ops = next(ops for ops in told["ranks"][0][1] if ops)
    ops[0] = [ops[0][0] if compress_s is None else compress_s, ops[0][1] if call is None else call]


def foreign() -> Iterator[Any]:
    for call in ("__init__", "noise", ["all_reduce"], 3, None, "all_gather"):
        yield lambda told, call=call: of_first_op(told, call=[[call, 10, 3]])
    for sizes in ([1, 2], [1, 2, -3], [1, 2, "3"], [1, 2, 1e9], [1, 2, 1 << 70], [[1, 2, 3]], 6):
        yield lambda told, sizes=sizes: of_first_op(told, call=[["all_gather", sizes]])
    for workers in (2, 0, "3", [3]):
        yield lambda told, workers=workers: of_first_op(told, call=[["all_reduce", 8, workers]])
    for seconds in (-1.0, float("nan"), float("inf"), "1", [1.0], 1):
        yield lambda told, seconds=seconds: of_first_op(told, compress_s=seconds)
    for ready in ([], ["1"], [float("nan")], [9.0], 1.0, None):
        yield lambda told, ready=ready: told.update(ready=ready)
    for ranks in ([], {}, [[]], [[[], []]], [1, 2, 3], "x"):
        yield lambda told, ranks=ranks: told.update(ranks=ranks)
    for whole in (0, -1, 5, True, None, [], "x", {}, 1e9):
        yield lambda told, whole=whole: [whole] if whole is None else whole


@pytest.mark.parametrize("damage", [flip, another_loss, fewer_steps, a_pipe, failed])
def test_a_damaged_curve_is_not_used(damage, results, capsys):
    run = settings_of(*SCENE, "steps=2").run()
    damage(done(results / "here/trained", run))
    again = done(results / "here/again", run)
    assert curve_of(again) is None and (again / CURVE).exists()
    told = capsys.readouterr().err
    assert ("its training is not reused" in told) == (damage not in (a_pipe, failed))


def test_a_curve_of_fewer_rounds_is_not_used(results, capsys):
    run = settings_of(*SCENE, "steps=4", *METHODS["LocalSGD"].split()).run()
    fewer_steps(done(results / "here/trained", run))
    again = done(results / "here/again", run)
    assert curve_of(again) is None and len(lines_of(again)) == 3
    assert "its training is not reused" in capsys.readouterr().err


def test_what_a_foreign_curve_says_is_data(results, capsys):
    """Its manifest fits; nothing that it names is called, and no value is believed."""
    run = settings_of(*SCENE, "steps=2").run()
    trained = done(results / "here/trained", run)
    whole = (trained / CURVE).read_text()
    for number, change in enumerate(foreign()):
        (trained / CURVE).write_text(whole)
        inside(change)(trained)
        again = done(results / "here/again", run)
        assert curve_of(again) is None, (number, (trained / CURVE).read_text())
        assert f"{trained}: " in capsys.readouterr().err
    (trained / CURVE).write_text(whole)
    fit(trained)
    assert curve_of(done(results / "here/again", run))


def test_a_sweep_trains_once_and_says_so(tmp_path: Path) -> None:
    asked = [
        settings_of(*SCENE, "steps=2", f"results={tmp_path}", f"profile.rate_mbit={rate}")
        for rate in (10, 20, 30)
    ]
    first, *others = (runner.perform(each) for each in asked)
    assert curve_of(first.run_dir) is None
    trained = str(first.run_dir.relative_to(tmp_path))
    assert {curve_of(each.run_dir)["run"] for each in others} == {trained}
    again = runner.perform(changed(asked[1], "rerun", True))
    assert curve_of(again.run_dir) is None
