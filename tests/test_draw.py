"""`draw=true` draws what a run would see, and says in one line what it cannot."""

import sys
from pathlib import Path

import numpy as np
import pytest

from harness.cli.draw import look, looks_s, table
from harness.config.scales import composed
from harness.reporting.figures.conditions import NodeConditions, conditions, names
from tests.door import door
from tests.launching import completed

PNG = b"\x89PNG\r\n\x1a\n"


def drawn(capsys, tmp_path: Path, *arguments: str) -> list[str]:
    """What is printed, a list of lines; the figure is there."""
    assert door(*arguments, "draw=60", f"results={tmp_path}") == 0
    path, *lines = capsys.readouterr().out.splitlines()
    assert Path(path).parent == tmp_path and Path(path).read_bytes().startswith(PNG)
    return lines


def test_it_draws_and_starts_nothing(tmp_path):
    """Also for an experiment with a sweep: the conditions are those of one run."""
    command = [sys.executable, "-m", "harness", "draw=true"]
    command += ["+experiment=dc2_imagenet_dynamic", "scale=laptop", f"results={tmp_path}"]
    ran = completed(command)
    assert ran.returncode == 0, ran.stderr
    path, head, *rows = ran.stdout.splitlines()
    assert path == str(tmp_path / "draw_dc2_dynamic_imagenet_laptop.png")
    assert Path(path).read_bytes().startswith(PNG)
    assert head.split() == "lowest mean highest Mbit/s delay ms loss % flows".split()
    assert [row.split()[:2] for row in rows] == [["node", str(node)] for node in range(8)]
    assert not list(tmp_path.glob("*/*/status.json"))


def test_every_node_has_its_row(capsys, tmp_path):
    _, *rows = drawn(capsys, tmp_path, "profile=markov", "workers=8")
    assert len(rows) == 8
    for row in rows:
        lowest, mean, highest = map(float, row.split()[2:5])
        assert 50 <= lowest <= mean <= highest <= 500


def test_nodes_that_see_the_same_are_one_row(capsys, tmp_path):
    _, *rows = drawn(capsys, tmp_path, "profile=straggler", "workers=64")
    assert [row.split() for row in rows] == [
        ["node", "0", "100", "100", "100", "0", "0", "0"],
        ["nodes", "1-63", "1000", "1000", "1000", "0", "0", "0"],
    ]


def test_ways_delay_loss_and_flows_are_told(capsys, tmp_path):
    _, up, down = drawn(
        capsys, tmp_path, "profile=contended", "profile@profile.of=asymmetric",
        "profile.of.up.delay_ms=20", "profile.of.down.loss=0.01",
    )  # fmt: skip
    assert up.split() == ["nodes", "0-3", "up", "100", "100", "100", "20", "0", "4"]
    assert down.split() == ["nodes", "0-3", "down", "1000", "1000", "1000", "0", "1", "4"]


def test_what_was_changed_of_a_recording_is_told(capsys, caplog, tmp_path):
    (tmp_path / "own.csv").write_text("at,kbps\n10:00:00,41000\n10:00:01,80\n10:00:02,-1\n")
    _, row = drawn(
        capsys, tmp_path, "profile=columns", f"profile.path={tmp_path}/own.csv", "workers=1",
        "profile.columns={time_s: at, rate_mbit: kbps}", "profile.units={rate_mbit: 0.001}",
        "profile.no_reading=outage",
    )  # fmt: skip
    assert row.split()[2] == "0.1" and row.split()[4] == "41"
    assert caplog.messages == [
        f"{tmp_path}/own.csv: 33.3 % of the samples were below 0.1 Mbit/s and play at it "
        "(floor_mbit)",
        f"{tmp_path}/own.csv: 33.3 % of the samples had no reading (no_reading=outage)",
    ]


@pytest.mark.parametrize("nodes", [1, 4, 8, 9, 64])
def test_figures_fit_any_number_of_nodes(nodes):
    settings, _ = composed(["profile=lte_lossy"])
    times_s = looks_s(100)
    seen = look(settings.build("profile"), nodes, times_s)
    figure = conditions(times_s, seen, np.full(len(times_s), 3), "title")
    assert 3 <= figure.get_size_inches()[1] <= 15
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert "competing flows" in labels and "rate (Mbit/s)" in labels
    figure.canvas.draw()


def test_conditions_that_never_change_are_said_in_words():
    links = np.array([[100.0, 10.0, 2.0, 0.01, 0.0]] * 3)
    figure = conditions(np.arange(3.0), [NodeConditions([0], links, links)], np.zeros(3), "title")
    assert figure.get_suptitle() == "title\none-way delay 10 ms, jitter 2 ms, loss 1 %"
    assert len(figure.axes) == 1
    told = table([NodeConditions([0], links, links)], 0).split()
    assert told[-6:] == ["100", "100", "100", "10", "1", "0"]


@pytest.mark.parametrize(
    ("nodes", "said"), [([3], "node 3"), ([0, 1, 2, 5], "nodes 0-2, 5"), ([1, 5], "nodes 1, 5")]
)
def test_nodes_are_named_in_runs(nodes, said):
    assert names(nodes) == said


@pytest.mark.parametrize(("arguments", "said"), [
    (["profile.rate_mbit=-4"], "profile: rate_mbit must be a number in [0.001, 1000000], got -4"),
    (["profile.rate_mbit=[1,2]"], "profile: rate_mbit must have a rate for node 2, got [1, 2]"),
    (["profile=nosuch"], "profile has no choice 'nosuch'; `python -m harness --help profile`"),
    (["profil=static"], "there is no key 'profil'; nearest: profile"),
    (["profile=trace", "profile.path=nosuch.csv"], "got 'nosuch.csv'"),
    (["workers=0"], "workers must be a whole number in [1, 100000], got 0"),
    (["profile.rate_mbit=${nosuch}"], "Interpolation key 'nosuch' not found"),
    (["draw=0"], "draw must be true or false or emulated seconds in [1, 100000], got 0"),
    (["results=/proc/x"], "/proc/x"),
])  # fmt: skip
def test_a_bad_value_is_one_line(arguments, said, capsys):
    assert door("draw=true", *arguments) == 1
    told = capsys.readouterr()
    assert told.err.startswith("harness: ") and said in told.err
    assert told.err.count("\n") == 1 and told.out == ""
