"""Bad command lines: one line that says what to write, nothing started, nothing written."""

import sys
from pathlib import Path

import pytest

from harness.cli import main as command
from harness.config.refused import keys
from harness.runner import run, signals
from tests.launching import completed

BAD: dict[str, str] = {
    "method=nosuch": "method has no choice 'nosuch'",
    "methd=topk": "nearest: method",
    "optimizer.lrr=3": "optimizer has no key 'lrr'; nearest: lr",
    "optimizer=null": "optimizer=null: a section takes its keys one by one: optimizer.kind, optim",
    "optimizer=adam": "optimizer=adam: a section takes its keys one by one: optimizer.kind, optim",
    "target=0.9": "target=0.9: a section takes its keys one by one: target.metric, target.value",
    "emulation=3": "emulation=3: a section takes its keys one by one: emulation.dilation, emul",
    "optimizer={lr: 1, rate: 2}": "optimizer has other keys: kind, lr, momentum, beta_2",
    "profile={rate: 2}": "profile has other keys: rate_mbit, delay_ms",
    "lr=0.1": "lr=0.1: there is no key 'lr'; write optimizer.lr=",
    "density=0.1": "density=0.1: there is no key 'density'; write controller.density=",
    "controller.densty=0.1": "controller=fixed has no key 'densty'; nearest: density",
    "profile.rate_mbit=200Mbit": "profile: rate_mbit must be a finite number or a list",
    "network.dilation=2": "network=netns has no key 'dilation'; write emulation.dilation=",
    "timeouts.start=3": "timeouts has no key 'start'; nearest: start_s",
    "seed=0,1": "seed=0,1: several values are a sweep, which needs -m",
    "profile=null": "profile=null: a group takes the name of a choice",
    "+foo=1": "foo is no key of a run",
    "+emulation.foo=1": "emulation.foo is no key of a run",
    "+optimizer.foo.bar=1": "optimizer.foo is no key of a run",
    "optimizer.lr=inf": "optimizer.lr must be a number in [0, 1e20], got inf",
    "optimizer.lr=nan": "optimizer.lr must be a number in [0, 1e20], got nan",
    "bucket_mb=inf": "bucket_mb must be",
    "seed=18446744073709551616": "seed must be a whole number in [0, 2^32), got",
    "batch_size=1000000000000": "batch_size must be a whole number in [1, 2^32), got",
    "steps=1.5": "steps must be",
    "target.value=abc": "target.value must be a number in [-1e20, 1e20] or null, got 'abc'",
    "optimizer.nesterov=maybe": "optimizer.nesterov must be true or false, got 'maybe'",
    "profile.high=100": "high_mbit is a key of profile=fluctuating, ",
    "profile.period=3": "profile=static has no key 'period'; period_s is a key of profile=square",
    "profile.delay_s=3": "profile=static has no key 'delay_s'; nearest: delay_ms",
    "timeouts.exchange=3": "timeouts has no key 'exchange'; nearest: exchange_s",
    "bucket=3": "bucket=3: there is no key 'bucket'; write bucket_mb=",
    "compressor.densityy=3": "compressor=dense has no key 'densityy'; keys: none",
    "steps=[": "steps=[ cannot be read as KEY=VALUE",
    "a b": "a b cannot be read as KEY=VALUE",
    "--nosuch": "options must be of",
    "network._target_=os.getcwd": "network",
    "parallel._target_=os.getcwd": "parallel._target_ must be one of Data, Split, Pipel",
    "compressor._target_=os.getcwd": "compressor._target_ must be a class with reduce, sea",
    "network._target_={}": "network._target_ must be a class by its path, got {}",
    "controller._target_=abc": "controller",
    "compressor=-inf": "compressor=-inf: a group takes the name of a choice",
    "~optimizer.momentum": "~optimizer.momentum: a run needs every key and group; leave this word",
    "network=[]": "network=[]: a group takes the name of a choice",
    "target=[]": "target=[]: a section takes its keys one by one: target.metric",
    "initial_weights=-1": "initial_weights must be a path or null, got -1",
    "model.times=-inf": "model: times must be a section with _target_ of a Times or null",
    "model.name=null": "model: name must be text, got None",
    "rerun=0": "rerun must be true or false, got 0",
    "plan=1.5": "plan must be true or false, got 1.5",
    "profile.rate_mbit=nan": "profile: rate_mbit must be",
    "workers=4294967295": "workers must be a whole number in [1, 100000], got",
    "optimizer.schedule._target_=os.getcwd": "optimizer.schedule",
}


def refusal(results: Path, *words: str) -> str:
    """What the command says, in this process: it must not get as far as starting anything."""
    argv, sys.argv = sys.argv, ["harness", *words, f"results={results}"]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signals, "stop_in_order", lambda: None)
            patch.setattr(run, "perform", lambda settings: pytest.fail("it started"))
            with pytest.raises(SystemExit) as ended:
                command.main()
    finally:
        sys.argv = argv
    assert isinstance(ended.value.code, str), "it said that all is well"
    return ended.value.code


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_word_is_answered_by_one_line_and_leaves_nothing(bad: str, tmp_path: Path) -> None:
    said = refusal(tmp_path / "results", bad)
    assert said.startswith("harness: ") and BAD[bad] in said and "\n" not in said
    assert not (tmp_path / "results").exists()


def test_a_bad_word_in_one_line_of_a_sweep_ends_all_of_it(tmp_path: Path) -> None:
    said = refusal(tmp_path / "results", "-m", "method=allreduce", "optimizer.lr=0.1,inf")
    assert said == "harness: optimizer.lr must be a number in [0, 1e20], got inf"


def test_a_key_of_another_choice_is_answered_by_the_keys_of_the_one_that_is(tmp_path: Path) -> None:
    said = refusal(tmp_path / "results", "profile=fluctuating", "profile.rate_mbit=200")
    near = (
        "profile=fluctuating has no key 'rate_mbit'; nearest: low_mbit, high_mbit; rate_mbit is a "
        "key of profile=slow, static, dc2_static_imagenet_laptop, ..."
    )
    assert said == f"harness: profile.rate_mbit=200: {near}"


UNITS = {
    "profile.rate_mbit=1Gbit": "1000", "profile.rate_mbit=2.5Gbps": "2500",
    "profile.rate_mbit=500kbit/s": "0.5", "profile.rate_mbit=10MB/s": "80",
    "profile.rate_mbit=100M": "100", "profile.rate_mbit=[1Gbit,100Mbit,10]": "[1000,100,10]",
    "profile.rate_mbit=10%": "a number of Mbit/s",
    "profile.delay_ms=1s": "1000", "profile.delay_ms=50us": "0.05",
    "profile.jitter_ms=50%": "a number of ms", "profile.loss=5%": "0.05",
    "timeouts.start_s=500ms": "0.5", "timeouts.stop_s=2min": "120",
    "bucket_mb=1GiB": "1024", "bucket_mb=512kB": "0.5",
    "network.queue_bytes=64KiB": "65536", "network.send_buffer_bytes=10MB": "10000000",
    "steps=10k": "10000", "steps=1e7": "10000000",
}  # fmt: skip


@pytest.mark.parametrize("bad", UNITS)
def test_a_value_with_a_unit_is_answered_by_the_number_in_the_unit_of_its_key(bad, tmp_path):
    said = refusal(tmp_path / "results", bad)
    key = bad.partition("=")[0].rpartition(".")[2]
    assert f"{key} must be" in said and said.endswith(f"; write {UNITS[bad]}")


LIMITS = {
    "batch_size=999999999": "batch_size: must be at most 1437, the samples of digits, together",
    "accumulate=4294967295": "the samples of digits, together with accumulate and workers, got",
    "optimizer.lr=1e299": "optimizer.lr must be a number in [0, 1e20], got 1e+299",
    "optimizer.clip_norm=1e299": "optimizer.clip_norm must be a number in (0, 1e20] or null, got",
    "emulation.dilation=1e-9": "emulation.dilation must be a number in [0.001, 10000], or auto",
    "emulation.interference=1e9": "emulation.interference must be a number in [1, 1000], got",
    "timeouts.stop_s=1e299": "timeouts.stop_s must be a number in (0, 2000000], got 1e+299",
    "bucket_mb=1e299": "bucket_mb must be a number in [0, 1000000] or null, got 1e+299",
    "profile.rate_mbit=1e-9": "rate_mbit must be a number in [0.001, 1000000], got 1e-09",
    "network=simulated network.flow_mbit=1e-299": "flow_mbit must be a number in [0.001, 1000000]",
    "model.width=1000000": "model: convnet needs 1.15e+06 GiB for weights and gradients, and this",
    "model=gpt dataset=pydoc model.layers=9999999": "layers must be a number in [1, 1202], got",
    "dataset=synthetic dataset.length=9007199254740992": "length must be a number in [1, 1e+08]",
    f"experiment={'x' * 201}": "experiment must be a folder name of at most 200 bytes without",
    f"experiment={'x' * 5000}": "experiment must be a folder name of at most 200 bytes without",
    "experiment='a\nb'": "experiment must be a folder name of at most 200 bytes without",
    "experiment='a\x1b[2Jb'": "experiment must be a folder name of at most 200 bytes without",
    f"experiment='{'é' * 101}'": "experiment must be a folder name of at most 200 bytes without",
    f"initial_weights={'x' * 5000}": "initial_weights must be a path or null (a text has at most",
    "model.name='a\nb'": "model: name must be text (a text has at most 4095 bytes and no control",
    f"dataset=cifar10 dataset.folder={'x' * 300}": "dataset.folder must be one that can be opened",
    f"steps={'[' * 900}{']' * 900}": "it is nested too deeply to be read",
}  # fmt: skip


@pytest.mark.parametrize("bad", LIMITS, ids=lambda bad: bad[:40])
def test_a_value_beyond_what_can_be_is_refused_with_what_can(bad: str, tmp_path: Path) -> None:
    words = [bad] if "'" in bad else bad.split()
    said = refusal(tmp_path / "results", *words)
    assert LIMITS[bad] in said and "\n" not in said and len(said) < 600
    assert not (tmp_path / "results").exists()


def test_as_a_command_it_ends_with_1_and_says_it_alone(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "harness", "methd=topk", f"results={tmp_path}"]
    told = completed(words)
    assert (told.returncode, told.stdout) == (1, "") and len(told.stderr.splitlines()) == 1


def test_keys_are_those_of_the_configuration() -> None:
    assert {"optimizer.schedule", "profile", "seeds", "hydra"} <= set(keys())
