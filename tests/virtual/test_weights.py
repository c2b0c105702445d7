"""Virtual time trains what real ranks train, bit for bit, and needs nothing of Linux."""

import os
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch

from harness.records import status
from tests.launching import afresh
from tests.virtual.runs import over_gloo, simulated, weights

METHODS = ["allreduce", "topk controller.density=0.1",
           "topk compressor=randomk controller.density=0.1", "qsgd"]  # fmt: skip
MORE = [  # what else a step is made of, each beside a method that keeps something of its own
    "powersgd accumulate=2 optimizer.clip_norm=0.5 bucket_mb=0.02",
    "acp_sgd model=resnet20 model.depth=8 precision=bf16 bucket_mb=0.05",
    "topk controller.density=0.1 model=lstm_as_lstm_ptb dataset=pydoc overlap=after_backward",
    "allreduce compressor=covap controller.density=0.25 error_feedback=true bucket_mb=0 "
    "optimizer.kind=adam optimizer.momentum=0.9 optimizer.nesterov=false",
]
EQUAL = ["step", "rank", "loss", "samples", "sent_bytes", "received_bytes", "dense_bytes",
         "density"]  # fmt: skip
RUN = ("steps=5", "emulation.compute=measured", "profile.rate_mbit=1000", "batch_size=8")


def rows(run, name="steps.csv"):
    return pd.read_csv(run / name).sort_values(["step", *(["rank"] if "steps" in name else [])])


@pytest.mark.parametrize(
    ("workers", "method"), [(3, name) for name in METHODS + MORE] + [(4, "allreduce")]
)
def test_weights_losses_and_bytes_are_those_of_real_ranks(tmp_path, workers, method):
    asked = (*RUN, f"workers={workers}", *f"method={method}".split())
    ours, theirs = simulated(tmp_path / "ours", *asked), over_gloo(tmp_path / "theirs", *asked)
    expected = weights(theirs)
    for name, value in weights(ours).items():
        assert torch.equal(value, expected[name]), name
    pd.testing.assert_frame_equal(
        rows(ours)[EQUAL].reset_index(drop=True), rows(theirs)[EQUAL].reset_index(drop=True)
    )
    mine, real = (rows(run, "evaluations.csv") for run in (ours, theirs))
    assert mine.metric.tolist() == real.metric.tolist() and len(mine) == 4
    assert mine.value.tolist() == real.value.tolist()


def test_fifty_steps_of_dense_training_have_the_losses_of_ddp_to_the_last_bit(tmp_path):
    asked = (*RUN[1:], "steps=50", "workers=4", "method=allreduce", "eval_every=50")
    ours, theirs = simulated(tmp_path / "ours", *asked), over_gloo(tmp_path / "theirs", *asked)
    mine, real = rows(ours), rows(theirs)
    assert len(mine) == 200 and mine.loss.tolist() == real.loss.tolist()
    assert mine.loss.iloc[-4:].mean() < 0.5 * mine.loss.iloc[:4].mean()  # it learns


WITHOUT = """
import sys
sys.modules["pyroute2"] = None  # importing it raises
from harness.runner import run
from harness.config.scales import composed
from harness.validation import checked
settings, _ = composed(["network=simulated", "steps=2", "model.width=8", "results=" + sys.argv[1]])
checked(settings)
outcome = run.perform(settings)
print(outcome.state, outcome.error)
"""


def test_a_run_imports_no_netlink(tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(tmp_path)]
    done = afresh(command, 120)
    assert done.stdout.strip() == "succeeded None", done.stdout + done.stderr


@pytest.mark.parametrize("proc", ["/proc", "/nowhere"])
def test_a_process_is_known_again_without_proc(monkeypatch, tmp_path, proc):
    monkeypatch.setattr(status, "PROC", status.Path(proc))
    status.begin(tmp_path)
    assert status.state(tmp_path) == "running"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = status._since(child.pid)
    assert began is not None and status._since(child.pid) == began
    child.communicate(b"\n")
    deadline = time.monotonic() + 10
    while status._since(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status._since(child.pid) is None
    assert status._since(os.getpid()) is not None
