"""Calibration end to end, on this machine's links and compressors."""

import os
import sys
from dataclasses import replace

import pytest
import yaml

from harness.calibrate import choice, compression, fit, links, windows
from harness.calibrate.compression import FittedCost, MatrixLayout
from harness.calibrate.windows import TcpWindows
from harness.cli import calibrate as command
from harness.config.device_costs import Cost
from harness.config.scales import composed
from harness.fidelity.bench import Bench
from harness.fidelity.collectives import RowPredictor
from harness.records import environment
from tests.door import door
from tests.emulation.inside import refusal
from tests.launching import completed

WAY = Bench("here", "Here", backend="gloo")


@pytest.fixture
def choices(tmp_path, monkeypatch):
    """Where choices are written to, in place of conf/network."""
    monkeypatch.setattr(choice, "path_of", lambda name: tmp_path / f"{name}.yaml")
    return tmp_path


def asked(monkeypatch, *arguments: str) -> int:
    return door("doctor", "--calibrate", *arguments)


def test_what_is_written_is_a_choice_of_network_that_can_be_simulated(choices):
    noise = {"noise": 0.07, "wake_s": 0.002, "latency_noise": 0.3}
    bucket = fit.Bucket(burst_s=0.002, packet_s=0.001)
    found = fit.Links(0.0001, 0.001, 0.95, 0.02, 0.1, **noise, bucket=bucket)
    text = choice.text(found, {"topk": FittedCost(Cost(bucket_us=100, element_ns=2), 0.1, 0.2)})
    assert "off by 2.0% in the median, 10.0% at most" in text
    told = yaml.safe_load(text)
    assert told.pop("fitted_on") == environment.machine()
    defaults = told.pop("defaults")
    assert defaults == ["simulated@_here_", "_self_"]
    overrides = [f"network.{k}={v}" for k, v in told.items() if not isinstance(v, dict)]
    cost = told["device"]["costs"]["topk"]
    assert cost == {"element_ns": 2.0, "bucket_us": 100.0}
    overrides += [f"+network.device.costs.topk.{key}={value}" for key, value in cost.items()]
    settings, _ = composed(["network=simulated", "emulation.dilation=4", *overrides])
    network = settings.build("network")
    costs = network.costs(settings.build("profile"), 4, 1, 4.0)
    oversubscription = max(1, 4 / os.cpu_count())  # workers to a core
    latencies_s = costs.alpha_s, costs.operation_s
    assert latencies_s == pytest.approx((oversubscription * 0.000025, 0.00025))
    assert costs.burst_s == pytest.approx(0.0005) and costs.packet_bytes > 0
    assert (costs.noise.relative, costs.noise.latency) == (0.07, 0.3)
    assert (costs.wake_s, costs.cpu_oversubscription) == pytest.approx((0.0005, oversubscription))
    given = network.compression("topk", workers=4, dilation=4.0)
    assert given.seconds(1000) == pytest.approx(oversubscription * (1e-4 + 2e-6) / 4)
    assert network.compression("covap", 4, 4.0) is None  # not among them: measured
    assert network.seconds_per_second(4, 4.0) == pytest.approx(oversubscription / 4)


def test_what_windows_and_rates_told_is_written(choices):
    shares = {50: 0.9, 800: 0.94}
    found = fit.Links(0.0001, 0.001, 0.95, 0.02, 0.1, 0.0, efficiencies=shares)
    told = yaml.safe_load(choice.text(found, {}, TcpWindows(2_000_000, 14_480, 0.05, 0.2)))
    assert told["efficiencies"] == shares
    assert (told["window_bytes"], told["initial_window_bytes"]) == (2_000_000, 14_480)
    settings, _ = composed(["network=simulated", "network.efficiencies={50: 0.9, 800: 0.94}",
                            "network.window_bytes=2000000"])  # fmt: skip
    assert settings.build("network").window_bytes == 2_000_000


def test_windows_are_those_that_transfers_were_made_of():
    known = replace(WAY, constants={"window_bytes": 1.5e6, "initial_window_bytes": 2e4})
    rows = [windows.row(rtt_ms, nbytes, 1.0)
            for rtt_ms in windows.RTTS_MS for nbytes in windows.SIZES_BYTES]  # fmt: skip
    rows = [row._replace(value=RowPredictor(known).predict(row)) for row in rows]
    found = windows.fit(rows)
    assert found.window_bytes == pytest.approx(1.5e6, rel=0.02)
    assert found.initial_window_bytes == pytest.approx(2e4, rel=0.02)
    assert found.worst < 0.01


def test_a_kernel_without_netem_measures_no_windows(choices, monkeypatch, capsys):
    monkeypatch.setattr(command.impairments, "available", lambda: False)
    assert asked(monkeypatch, "--name", "mine", "--only", "windows") == 0
    assert "no netem in this kernel: windows and slow start" in capsys.readouterr().err
    assert "window_bytes" not in yaml.safe_load((choices / "mine.yaml").read_text())


def test_a_file_that_is_there_stays_unless_forced(choices, monkeypatch, capsys):
    (choices / "mine.yaml").write_text("kept")
    assert asked(monkeypatch, "--name", "mine") == 1
    assert "give another --name, or --force" in capsys.readouterr().err
    assert (choices / "mine.yaml").read_text() == "kept"
    assert asked(monkeypatch, "--name", "no/path") == 1


def test_parts_that_are_not_measured_again_stay(choices, monkeypatch):
    links_of = [fit.Links(0.0001, each, 0.95, 0.02, 0.1, 0.0) for each in (0.001, 0.002)]
    costs = [{"topk": FittedCost(Cost(bucket_us=each), 0.1, 0.2)} for each in (100, 200)]
    whole = choice.text(links_of[0], costs[0], TcpWindows(70_000, 7_000, 0.1, 0.2))
    (choices / "mine.yaml").write_text(whole)
    monkeypatch.setattr(command, "_links", lambda: links_of[1])
    assert asked(monkeypatch, "--name", "mine", "--only", "links", "--force") == 0
    told = yaml.safe_load((choices / "mine.yaml").read_text())
    before = yaml.safe_load(whole)
    assert told == before | {"operation_s": 0.002} and before["operation_s"] == 0.001
    monkeypatch.setattr(command, "_compression", lambda: costs[1])
    assert asked(monkeypatch, "--name", "mine", "--only", "compression", "--force") == 0
    again = yaml.safe_load((choices / "mine.yaml").read_text())
    assert again == told | {"device": {"costs": {"topk": {"bucket_us": 200.0}}}}


TOPK_01 = ["method=topk", "controller.density=0.1"]
LAYOUTS = [MatrixLayout(1, 64), MatrixLayout(4, 32)]


def test_compressors_that_differ_are_measured_once_each(choices):
    some = [["method=topk"], ["method=dc2_da2"], TOPK_01, ["method=powersgd"]]
    found = list(compression.measured(some, LAYOUTS))
    assert {row.compressor for row in found} == {"topk", "sampled_topk", "powersgd"}
    assert all(row.seconds > 0 for row in found)
    assert len(found) == 8
    assert len(list(compression.measured([TOPK_01, TOPK_01], LAYOUTS[:1]))) == 1


@pytest.mark.network
def test_real_collectives_take_what_their_bytes_need():
    if refusal():
        pytest.skip(f"namespaces are refused here: {refusal()}")
    samples = links.measured(links.MeasurementGrid(nodes=(2, 3), rates_mbit=(50, 200), repeats=3))
    assert {(each.nodes, each.rate_mbit, each.collective) for each in samples} == {
        (nodes, rate_mbit, collective)
        for nodes in (2, 3)
        for rate_mbit in (50, 200)
        for collective in links.COLLECTIVES
    }
    alone = [each for each in samples if each.buckets == 1]
    assert sum(each.short for each in alone) == len(alone) / (1 + len(links.LASTING_S))
    in_a_row = [each for each in samples if each.buckets > 1]
    assert {each.collective for each in in_a_row} == {"all_reduce"} and len(in_a_row) == 4
    for each in samples:
        assert len(each.times_s) == 3
        if not each.short:
            share = 1.0 if each.collective == "all_gather" else 2 / each.nodes
            volume = (each.nodes - 1) * share * each.nbytes * each.buckets
            bound_s = volume * 8 / (each.rate_mbit * 1e6)
            assert each.seconds > bound_s - 0.0045  # what idle shapers and a last packet save
    found = fit.links(samples)
    assert 0.3 < found.efficiency <= 1 and found.wake_s > 0 and found.latency_noise > 0


def test_the_command_says_what_it_takes():
    told = completed([sys.executable, "-m", "harness.doctor", "--help"])
    assert told.returncode == 0 and "--force" in told.stdout
