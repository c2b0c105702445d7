"""Foreign commands over real links: their bytes, their lines, what goes around, what is left."""

import json
import os
import signal
from pathlib import Path

import pytest

from harness.reporting.analysis import load
from harness.reporting.report import report
from tests.aftermath import declare_good, remains, traces
from tests.around.commands import (
    COUNTS_ANEW,
    DDP,
    GOES_ASIDE,
    GRADIENT_BYTES,
    LIES,
    PATTERN,
    RPC,
    RPC_BYTES,
    SAYS_STEPS,
    WAITS,
    WARMS_UP,
    ended,
    start,
)
from tests.launching import own_reasons, processes, runs, until

pytestmark = [pytest.mark.launch, pytest.mark.timeout(600)]
TORCHRUN = ("-m", "torch.distributed.run")
STEPS = r"metrics=step (?P<step>\d+) loss (?P<loss>\S+)"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of plain DDP by a bare torchrun, and what was said."""
    results = tmp_path_factory.mktemp("trained")
    said = ended(results, DDP, PATTERN, "name=theirs", words=TORCHRUN)
    [run] = runs(results)
    return run, said


def reasons(run: Path) -> list[str]:
    """Reasons that are the command's, whatever else this machine does."""
    return [each for each in own_reasons(run) if "for a processor" not in each]


def test_an_unmodified_torchrun_trains_over_the_links(trained: tuple[Path, str]) -> None:
    run, said = trained
    assert reasons(run) == [], said
    steps = load.steps(run)
    assert sorted(set(steps.step)) == list(range(12)) and set(steps["rank"]) == {0, 1}
    assert steps[steps["rank"] == 0].loss.notna().all() and "step 11 loss" in said
    [accuracy] = load.evaluations(run).itertuples()
    assert (accuracy.metric, accuracy.value, accuracy.step) == ("accuracy", 0.25, 12)
    assert json.loads((run / "environment.json").read_text())["proof"]["probe"]


def test_its_links_carry_what_ddp_must_send(trained: tuple[Path, str]) -> None:
    """A ring of two sends 2 (2 - 1) / 2 of the gradient; headers and messages come to it."""
    steps = load.steps(trained[0])
    for _, rows in steps[steps.step > 1].groupby("rank"):
        for sent in (rows.sent_bytes.mean(), rows.received_bytes.mean()):
            assert GRADIENT_BYTES <= sent <= 1.15 * GRADIENT_BYTES


def test_a_report_takes_it_beside_others_and_tells_its_command(trained: tuple[Path, str]) -> None:
    run, _ = trained
    declare_good(run)
    out = report(run.parent)
    page = (out / "index.html").read_text()
    assert "theirs" in page and "python -m harness.around workers=2" in page
    assert "theirs" in (out / "comparison.csv").read_text()


def test_the_same_command_finds_its_run(trained: tuple[Path, str]) -> None:
    run, _ = trained
    declare_good(run)
    before = (run / "status.json").read_bytes()
    said = ended(run.parents[1], DDP, PATTERN, "name=theirs", words=TORCHRUN)
    assert "skipped, succeeded before" in said, said
    assert (run / "status.json").read_bytes() == before


def test_the_clock_starts_at_the_line_that_matches(tmp_path: Path) -> None:
    """Before it goes a megabyte, a second at 8 Mbit/s; its steps are told by event files."""
    took = r"metrics=loss (?P<loss>\S+)|took (?P<took>\S+)"
    said = ended(tmp_path, WARMS_UP, f"tensorboard={tmp_path / 'events'}", took, "start=^begin$")
    [run] = runs(tmp_path)
    assert reasons(run) == [], said
    assert sorted(set(load.steps(run).step)) == [0, 1, 2, 3, 4]
    first = load.evaluations(run).iloc[0]
    assert first.value >= 0.9 and first.time_s < first.value - 0.5


def test_a_counter_that_begins_anew_is_numbered_on(tmp_path: Path) -> None:
    """The first line comes right after the first byte; the last one has no end of line."""
    pattern = r"metrics=\[(?P<step>\d+)/5\] Loss (?P<loss>\S+)|Acc@1 (?P<accuracy>\S+)"
    said = ended(tmp_path, COUNTS_ANEW, pattern, "sends_bytes=1")
    [run] = runs(tmp_path)
    assert reasons(run) == [], said
    assert sorted(set(load.steps(run).step)) == list(range(20))
    found = load.evaluations(run)
    assert [*found.step[found.metric == "accuracy"]] == [5, 10, 15, 20]


def test_remote_procedure_calls_cross_the_link_and_nothing_else_joins_nodes(tmp_path: Path) -> None:
    """By default TensorPipe copies from the memory of any process that it can address."""
    said = ended(tmp_path, RPC, STEPS)
    [run] = runs(tmp_path)
    assert reasons(run) == [], said
    assert "step 0 loss 1000000" in said
    assert "memory False" in said and "socket False segment False" in said
    passed = json.loads((run / "summary.json").read_text())["proof"]["passed_bytes"]
    assert passed["up0"] >= RPC_BYTES and passed["down1"] >= RPC_BYTES


def test_a_time_in_which_no_link_carries_so_much_is_not_believed(tmp_path: Path) -> None:
    """450,000 bytes in a twentieth of the 0.45 s that 8 Mbit/s take; files of the run are kept."""
    said = ended(tmp_path, LIES, STEPS + r" time (?P<time>\S+)")
    [run] = runs(tmp_path)
    [reason] = reasons(run)
    assert "by the command's own time: the plan has" in reason
    assert "kept:" in said and "rewritten" not in said


def test_a_line_that_never_comes_is_told(tmp_path: Path) -> None:
    ended(tmp_path, SAYS_STEPS, STEPS, "start=nothing says this")
    [run] = runs(tmp_path)
    assert "start=nothing says this never came" in reasons(run)[0]


def test_an_interface_beside_the_link_is_named(tmp_path: Path) -> None:
    """Nothing crosses the links in the steps either."""
    ended(tmp_path, GOES_ASIDE, STEPS)
    [run] = runs(tmp_path)
    told = "\n".join(reasons(run))
    assert "node 0 sent 0 bytes over its link in 2 steps" in told
    assert "by aside, which no profile shapes" in told
    seen = json.loads((run / "summary.json").read_text())["proof"]["interfaces_sent_bytes"]
    assert 100 < seen["0"]["eth0"] < 10_000 and seen["0"]["lo"] == 0  # without the probes'


def test_a_command_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    ended(
        tmp_path, "import atexit\natexit.register(print, 'a table')\nraise ValueError('so it is')"
    )
    [run] = runs(tmp_path)
    assert _status(run)["state"] == "failed"
    assert _status(run)["error"].endswith("exited with status 1: ValueError: so it is")


@pytest.mark.parametrize("victim", ["command", "process 1 of node 1", "runner"])
def test_kill_9_leaves_nothing(victim: str, tmp_path: Path) -> None:
    process = start(tmp_path, WAITS, STEPS)
    with process:
        until(lambda: _under_way(tmp_path), "a run under way")
        seen = traces(process.pid)
        pattern = str(tmp_path / "train.py") if victim == "command" else victim
        ours = [pid for pid in processes(pattern) if pid in seen.processes and pid != process.pid]
        os.kill(process.pid if victim == "runner" else max(ours), signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
    until(lambda: not remains(seen), "nothing left")
    [run] = runs(tmp_path)
    until(lambda: _status(run)["state"] != "running", "the end of the run")
    if victim == "runner":
        assert _status(run)["state"] == "interrupted"
    else:
        assert "the command was killed by SIGKILL" in _status(run)["error"], said


def _status(run: Path) -> dict:
    return json.loads((run / "status.json").read_text())


def _under_way(results: Path) -> bool:
    logs = [run / "logs" / "node0.log" for run in runs(results)]
    return any("step 0" in log.read_text() for log in logs if log.exists())
