"""The tutorials of the docs, done as they say, with fewer steps and seeds."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.launching import afresh, completed
from tests.test_how_to import COMMANDS, FILE

pytestmark = [pytest.mark.launch, pytest.mark.long, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[1]
SHORT = (("seed=0,1,2", "seed=0"), ("steps=200", "steps=4"), ("steps=400", "steps=4"))
PACKETS = "network.probe_s=0.2"  # links are probed for less time than a user's
PROGRAMS = {"python": (), "torchrun": ("-m", "torch.distributed.run")}


def commands(tutorial: str, where: Path) -> list[list[str]]:
    """Writes the files that a tutorial tells; returns its commands, in short."""
    text = (ROOT / f"docs/{tutorial}.md").read_text()
    for name, content in FILE.findall(text):
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(content)
    found = "\n".join(COMMANDS.findall(text))
    for long, short in SHORT:
        found = found.replace(long, short)
    return [line.split() for line in found.splitlines() if line and not line.startswith("export ")]


def done(words: list[str], where: Path) -> str:
    program, *rest = words
    if "report=false" in rest:  # of the tutorials' commands those over packets
        rest += [PACKETS, "eval_every=4"]
    command = [sys.executable, *PROGRAMS[program], *rest]
    if rest[0] == "-m" and "GRADNET_CONFIG" not in os.environ:  # ours, without parts of one's own
        ended = completed(command, 600, cwd=where)
    else:
        known = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        ended = afresh(command, cwd=where, env=known)
    assert ended.returncode == 0, f"{' '.join(words)}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def names(said: str) -> list[str]:
    return re.findall(r"succeeded: (\S+) seed 0", said)


@pytest.mark.network
def test_a_link_is_drawn_planned_raced_and_proved(tmp_path):
    doctor, drawn, plan, race, packets, report = commands("tutorial_link", tmp_path)
    done(doctor, tmp_path)
    done(drawn, tmp_path)
    assert (tmp_path / "results/draw_trace.png").is_file()
    methods = ["allreduce", "topk_0.01", "dc2_da2", "qsgd"]
    planned = done(plan, tmp_path)
    assert [name for name in methods if name not in planned] == []
    assert names(done(race, tmp_path)) == methods
    assert names(done(packets, tmp_path)) == ["qsgd"]
    assert "target: accuracy 0.85" in done(report, tmp_path)
    assert (tmp_path / "results/my_link/report/index.html").is_file()


@pytest.mark.network
def test_a_compressor_outside_of_the_repository_is_compared_and_proved(tmp_path, monkeypatch):
    assert "export GRADNET_CONFIG=conf" in (ROOT / "docs/tutorial_compressor.md").read_text()
    monkeypatch.setenv("GRADNET_CONFIG", "conf")
    seen, against, report, sweep, packets = commands("tutorial_compressor", tmp_path)
    assert "blocks.Blocks" in done(seen, tmp_path)
    assert names(done(against, tmp_path)) == ["topk_0.05", "randomk_0.05", "blocks_0.05"]
    assert "blocks 5 %" in done(report, tmp_path)
    assert len(names(done(sweep, tmp_path))) == 4
    assert names(done(packets, tmp_path)) == ["blocks_0.05"]


def test_a_script_trains_by_a_method_and_goes_on(tmp_path):
    first, again, plan = commands("tutorial_script", tmp_path)
    told = [done(words, tmp_path) for words in (first, again)]
    steps = [re.findall(r"^dc2_da2: steps (\d+) to (\d+)", each)[0] for each in told]
    assert steps == [("0", "19"), ("20", "39")]
    assert "exposed" in done(plan, tmp_path)
