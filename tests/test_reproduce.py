"""`python -m harness study reproduce`: what it runs, what it keeps, what it leaves, how it ends."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from harness.config import sweep as sweep_of_runs
from harness.config.scales import compose
from harness.config.search_path import choices
from harness.config.settings import BadSetting, Settings
from harness.records import environment
from harness.reporting.analysis import agreement
from harness.reproduce import reference
from harness.reproduce.gather import _conditions
from harness.reproduce.paper import OF_QUICK, Paper, Sweep, check, reproducible
from harness.reproduce.perform import perform
from tests.launching import afresh, popen, processes, until

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = set(choices("experiment"))
TINY = ("scale=laptop", "workers=2", "steps=4", "eval_every=2", "target.value=0.99")


@pytest.fixture
def paper(tmp_path):
    """A paper of one's own: two methods in virtual time."""
    told = {"title": "A paper", "claims": "", "experiments": ["quickstart"],
            "sweeps": [["network=calibrated", "method=allreduce,topk", "seed=0"]]}  # fmt: skip
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def started(paper: Path | str, *more: str, **options) -> subprocess.Popen:
    results = f"results={Path(paper).parent / 'results'}"
    command = [sys.executable, "-m", "harness", "study", "reproduce", str(paper)]
    command += [*TINY, results, *more]
    pipe = subprocess.PIPE
    return popen(command, stdout=pipe, stderr=pipe, cwd=ROOT, **options)


def reproduced(paper: Path | str, *more: str) -> tuple[int, str, str]:
    process = started(paper, *more)
    out, err = process.communicate()
    return process.returncode, out, err


def states(paper: Path) -> list[str]:
    files = (paper.parent / "results/quickstart").glob("*/status.json")
    return sorted(yaml.safe_load(file.read_text())["state"] for file in files)


@pytest.mark.parametrize("name", sorted(reproducible()))
def test_a_paper_names_experiments_that_are_there_each_once(name):
    known = Paper.read(name)
    assert known.experiments and set(known.experiments) <= EXPERIMENTS
    assert len(set(known.experiments)) == len(known.experiments)
    folder = reproducible()[name].parent / "conf/experiment"
    of_paper = {file.stem for file in folder.glob("*.yaml")}
    assert set(known.experiments) == of_paper


@pytest.mark.parametrize("name", ["dc2", "netsense"])
def test_packets_are_runs_of_the_plain_sweep_and_each_has_a_twin_in_virtual_time(name):
    known = Paper.read(name)
    *sweeps, over_packets = known.sweeps
    experiment = next(filter(over_packets.covers, known.experiments))
    named = ["-m", f"+experiment={experiment}"]
    virtual, packets = (
        compose([*named, *sweep.overrides, "scale=laptop", "seed=0"])
        for sweep in (next(each for each in sweeps if each.covers(experiment)), over_packets)
    )
    plain = compose([*named, "scale=laptop", "seed=0"])
    assert set(map(Settings.run_dir, packets)) <= set(map(Settings.run_dir, plain))
    assert not any(each.build("network").in_process for each in packets)
    assert all(each.build("network").in_process for each in virtual)
    twins = [{agreement.identity_of(each.config) for each in runs} for runs in (virtual, packets)]
    assert twins[0] >= twins[1] > set()


@pytest.mark.parametrize("name", sorted(reproducible()))
def test_the_quick_form_is_a_part_of_the_whole(name):
    known = Paper.read(name)
    if not known.quick:
        with pytest.raises(BadSetting, match=f"laptop or paper for {name}, which has no quick"):
            known.quickly()
        return
    part = known.quickly()
    assert set(part.experiments) < set(known.experiments)
    one = part.only(part.experiments[-1:])  # of all its runs, those of a seed
    whole = known.only(one.experiments)
    found, all_of_it = (each.described([OF_QUICK, "seed=0"]).runs for each in (one, whole))
    assert set() < set(map(Settings.run_dir, found)) <= set(map(Settings.run_dir, all_of_it))


@pytest.mark.parametrize("name", sorted(reproducible()))
def test_a_sweep_takes_no_choice_within_a_group_from_a_comparison(name):
    known = Paper.read(name)
    with sweep_of_runs.hydra():
        for sweep in [*known.sweeps, *known.quick]:
            named = {each.partition("=")[0] for each in sweep.overrides}
            for experiment in filter(sweep.covers, known.experiments):
                lines = sweep_of_runs.comparison([f"+experiment={experiment}", OF_QUICK])
                groups = {each.partition("=")[0] for line in lines for each in line}
                lost = {each for each in groups if "/" in each and each.split("/")[0] in named}
                assert not lost - named, (experiment, sweep.overrides)


@pytest.mark.parametrize("bad", ["seed=0", 3, {"overrides": []}, {"experiments": ["a"]}])
def test_what_is_no_sweep_is_told(bad):
    with pytest.raises(BadSetting, match="a sweep must be a list of overrides, or overrides and"):
        Sweep.read(bad)


def test_figures_of_no_experiment_of_it_are_told(paper):
    told = yaml.safe_load(paper.read_text()) | {"figures": {"dc2_table2": ["breakdown"]}}
    paper.write_text(yaml.safe_dump(told))
    with pytest.raises(BadSetting, match="figures must be of experiments .*, got dc2_table2"):
        Paper.read(str(paper))


def test_all_data_that_is_missing_is_named_at_once(monkeypatch):
    monkeypatch.setenv("GRADNET_DATA", "/nowhere")
    known = Paper("own", "A paper", "", ["dc2_table2"], [Sweep(["seed=0"])])
    with pytest.raises(BadSetting) as told:
        check(known.described(["scale=paper"]).runs)
    for name in ("cifar10", "imagenet", "ptb"):
        assert name in str(told.value).lower()


def test_an_unknown_paper_is_told_with_those_that_are_known(tmp_path):
    with pytest.raises(
        BadSetting, match="acp_sgd, covap, dc2, .*netsense, or a yaml file, got 'dc3'"
    ):
        Paper.read("dc3")
    bad = tmp_path / "bad.yaml"
    bad.write_text("title: A paper\n")
    with pytest.raises(BadSetting, match="must have the keys title, claims, experiments, sweeps"):
        Paper.read(str(bad))


@pytest.mark.long
def test_what_is_done_is_kept_and_the_page_has_every_run(paper):
    status, out, _ = reproduced(paper)
    assert status == 0 and "2 runs, 0 of them done before; to do: 2 in virtual time" in out
    folder = paper.parent / "results"
    rows = pd.read_csv(folder / "own/runs.csv")
    assert sorted(rows.method) == ["allreduce", "topk_0.01"]
    assert set(rows.world) == {"virtual"} and set(rows.scale) == {"laptop"}
    page = (folder / "own/index.html").read_text()
    assert "A paper" in page and "../quickstart/report/index.html" in page
    assert (folder / "quickstart/report/comparison.csv").exists()
    before = {file: file.stat().st_mtime_ns for file in folder.glob("quickstart/*/steps.csv")}
    status, out, _ = reproduced(paper)
    assert status == 0 and "2 runs, 2 of them done before; to do: none" in out
    assert before == {file: file.stat().st_mtime_ns for file in before}


@pytest.mark.long
def test_the_page_has_what_was_done_before_though_only_some_is_asked_for(paper):
    told = yaml.safe_load(paper.read_text()) | {"experiments": ["quickstart", "dc2_imagenet_da1"]}
    paper.write_text(yaml.safe_dump(told))
    for name in told["experiments"]:
        status, _, err = reproduced(paper, "method=allreduce", "--only", name)
        assert status == 0, err
    rows = pd.read_csv(paper.parent / "results/own/runs.csv")
    assert set(rows.experiment) == set(told["experiments"])


def test_constants_of_another_machine_are_told_before_they_are_used(paper):
    _, _, err = reproduced(paper, "--plan", "network.fitted_on=elsewhere")
    assert "constants of elsewhere, and this is" in err and "--calibrate --force" in err
    _, _, err = reproduced(paper, "--plan", f"network.fitted_on='{environment.machine()}'")
    assert "constants of" not in err


@pytest.mark.long
def test_a_run_that_fails_is_done_once_more_then_kept_and_told(paper):
    status, out, err = reproduced(paper, "optimizer.lr=1e20", "method=allreduce")
    assert status == 1
    assert out.count("quickstart allreduce seed 0: failed") == 2
    assert states(paper) == ["failed"]
    assert "not finite" in err


@pytest.mark.long
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(paper):
    many = ("seed=0,1,2", "steps=30")
    process = started(paper, *many, start_new_session=True)
    assert process.stdout is not None
    while "succeeded" not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "goes on from here" in err
    found = states(paper)
    assert "succeeded" in found and "running" not in found and len(found) <= 6
    status, out, _ = reproduced(paper, *many)
    assert status == 0 and f"6 runs, {found.count('succeeded')} of them done before" in out
    assert states(paper) == ["succeeded"] * 6


DEAF = """
import os, signal, time
from harness.reproduce import perform

perform.IMPORTED, perform.LAST_S = "json", 0.5
try:
    with perform.pool_of(1) as pool:
        worker = pool.submit(os.getpid).result()
        pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGTERM}).result()
        pool.submit(time.sleep, 3600)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("interrupted", os.path.exists(f"/proc/{worker}"))
"""


def test_ctrl_c_ends_a_process_that_does_not_listen():
    done = afresh([sys.executable, "-c", DEAF], timeout=120)
    assert done.stdout == "interrupted False\n", done.stderr


@pytest.mark.long
def test_no_process_outlives_one_that_is_killed(paper):
    process = started(paper, "seed=0,1,2", "steps=30", start_new_session=True)
    assert process.stdout is not None
    while "succeeded" not in process.stdout.readline():
        assert process.poll() is None
    session = members(process.pid)
    process.kill()
    assert len(session) > 1 and process.wait() == -signal.SIGKILL
    until(lambda: not members(process.pid), "the processes of its pool end")
    process.communicate()
    assert states(paper).count("running") == 0


def members(session: int) -> list[int]:
    """Processes of a pool in `session`."""
    return [pid for pid in processes("multiprocessing") if session_of(pid) == session]


def session_of(pid: int) -> int | None:
    """None: it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


RATES = ({"profile.rate_mbit": 5.0}, {"profile.rate_mbit": 8.0})
COST = "network.device.costs.topk.element_ns"
DEVICES = ({"network.device.name": "A40", COST: 0.2},
           {"network.device.name": "A40, slower", COST: 3.0})  # fmt: skip


def told(*conditions: dict[str, object], world: str = "virtual") -> list[str]:
    rows = {"experiment": "some", "model": "net", "world": world, "conditions": conditions}
    return list(_conditions(pd.DataFrame(rows)))


def test_a_setting_is_told_by_its_rate_and_by_the_name_of_its_device():
    settings = [rate | device for rate in RATES for device in DEVICES]
    assert told(*settings) == [f"rate_mbit {rate}, device A40{more}"
                               for rate in (5, 8) for more in ("", ", slower")]  # fmt: skip


def test_what_all_share_is_not_told_nor_that_packets_have_another_network():
    assert told(*RATES) == ["rate_mbit 5", "rate_mbit 8"]
    noisy = [{"network.exchange_noise": noise} for noise in (0.01, 0.3)]
    assert told(*noisy) == ["exchange_noise 0.01", "exchange_noise 0.3"]
    worlds = ["packets", "virtual"]
    assert told(*noisy, world=worlds) == ["", ""]  # type: ignore[arg-type]


KEPT = sorted(path for path in reference.FOLDER.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_verdicts_and_numbers_rest_on_runs_that_are_kept(folder):
    kept = set(pd.read_csv(folder / "runs.csv").run_id)
    for name in ("claims", "published"):
        if (path := folder / f"{name}.csv").is_file():
            rows = pd.read_csv(path, keep_default_na=False)
            assert {run for runs in rows.runs for run in runs.split()} <= kept


def test_a_study_is_written_whole_and_of_one_commit(tmp_path, monkeypatch):
    told = {"title": "A paper", "claims": "", "experiments": ["quickstart", "pace_fluctuating"],
            "sweeps": [["network=calibrated", "method=allreduce", "seed=0"]],
            "figures": {"quickstart": ["quality_steps"]}}  # fmt: skip
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(told))
    paper = Paper.read(str(tmp_path / "own.yaml"))
    tiny = ["scale=laptop", "workers=2", "steps=4", "eval_every=2", f"results={tmp_path / 'runs'}"]
    tiny += ["profile=static", "model=convnet", "emulation.compute=measured"]
    runs = paper.described(tiny).runs
    assert {each.state for each in perform(runs, lambda *_: None)} == {"succeeded"}
    results, out = tmp_path / "runs", tmp_path / "own"
    whole = {path.name for path in reference.write(paper, results, tiny, tmp_path)}
    assert set(pd.read_csv(out / "runs.csv").experiment) == {"quickstart", "pace_fluctuating"}
    assert {each.split("-")[0] for each in whole if "quality_steps" in each} == {"quickstart"}
    assert "| quickstart | virtual | 1 |" in (out / "README.md").read_text()
    wrong = replace(paper, figures={"quickstart": ["quality_stairs"]})
    with pytest.raises(BadSetting, match="figures of quickstart .*quality_steps.*, got quality_st"):
        reference.write(wrong, results, tiny, tmp_path)
    with monkeypatch.context() as patched:  # a file that was edited would not count
        environments = iter([{"git": {"commit": each * 40}} for each in "ef"])
        patched.setattr(reference, "read_json", lambda path: next(environments))
        with pytest.raises(BadSetting, match=r"commit, got e{12} \(1 runs\), f{12} \(1 runs\)"):
            reference.write(paper, results, tiny, tmp_path)
    assert {path.name for path in out.iterdir()} == whole  # as before
    shorter = replace(paper, experiments=["quickstart"])
    reference.write(shorter, results, tiny, tmp_path)
    assert not list(out.glob("pace_fluctuating-*")) and list(out.glob("quickstart-*"))


def test_only_experiments_of_the_paper_may_be_asked_for():
    paper = Paper.read("netsense")
    assert paper.only([]) == paper
    chosen = paper.only(["netsense_table1", "netsense_resnet18_contended"]).experiments
    assert chosen == [name for name in paper.experiments if name in chosen] and len(chosen) == 2
    with pytest.raises(BadSetting, match="experiments of .*netsense_table1.*, got dc2_table2"):
        paper.only(["dc2_table2"])
