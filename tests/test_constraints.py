"""What does not go together: every row of the table can be broken, is told, and stands alone."""

import ast
import re
from pathlib import Path

import pytest

from harness.cli.help import shown
from harness.config.parts import choices, replaces
from harness.config.settings import BadSetting
from harness.constraints import CONSTRAINTS, Constraint, reference
from harness.validation import checked
from tests.test_settings import settings

ROOT = Path(__file__).resolve().parents[1]
VIRTUAL, SERVER, LOCAL = "network=simulated", "parallel=server", "parallel=local"
REPLAY, PACED = "emulation.compute=replay", "emulation.compute=paced"
SERVED = (VIRTUAL, SERVER, "method=topk", "controller.density=0.1")
ASYNC = (*SERVED, "parallel.mode=async")
PIPELINE = ("model=convnet", "dataset=digits", "parallel=pipeline")
GOSSIP = (LOCAL, "parallel.peers=pair", "parallel.outer=momentum")
LEVELS = ("parallel.levels=2", "workers=4", "workers_per_node=2")
TIMED = ("model=mlp_as_resnet20",)
BROKEN: tuple[tuple[str, ...], ...] = (  # a command line for each row, in the order of the table
    ("workers=3", "workers_per_node=2"),
    ("profile.rate_mbit=[10,20]", "workers=3"),
    (VIRTUAL, "workers=20000"),
    ("target.metric=bleu",),
    ("target.value=95",),
    ("model=gpt", "dataset=digits"),
    ("model.width=1000000",),
    ("batch_size=999999999",),
    ("target.ends_run=true",),
    ("optimizer.beta_2=0.9",),
    ("optimizer.kind=adam", "optimizer.nesterov=true"),
    ("residual_decay=0.9",),
    ("model=convnet", "model.times=null", PACED),
    ("model=bert_base",),
    (VIRTUAL, "network.alike=true"),
    ("activations=dct_mp",),
    ("parallel.levels=2",),
    (*LEVELS, "compressor=powersgd"),
    (*TIMED, *LEVELS, VIRTUAL, REPLAY, "network.alike=true"),
    (*LEVELS, "+watch._target_=harness.config.watch.Watch"),
    (*TIMED, "parallel=split", REPLAY),
    ("parallel=split", "parallel.stages=9"),
    (*PIPELINE, "workers=3"),
    (*PIPELINE, "workers_per_node=2"),
    (*PIPELINE, "overlap=after_backward"),
    (*PIPELINE, VIRTUAL, REPLAY, "network.alike=true"),
    (*TIMED, REPLAY, "+watch._target_=harness.config.watch.Watch"),
    (*TIMED, REPLAY, "precision=bf16"),
    (*TIMED, REPLAY, "resume_from=nowhere"),
    ("+watch._target_=harness.config.watch.Watch", "+watch.gradients=[nowhere]"),
    (SERVER, "network=wan"),
    (*TIMED, *SERVED, REPLAY, "network.alike=true"),
    (*TIMED, SERVER, REPLAY),
    (SERVER, "workers_per_node=2"),
    (SERVER, "device=cuda"),
    (SERVER, "activations=dct_mp"),
    (SERVER, "compressor=powersgd"),
    (SERVER, "overlap=after_backward"),
    (SERVER, "emulation.compression=own"),
    (SERVER, "emulation.hooks=wait"),
    (SERVER, "emulation.interference=2"),
    (LOCAL, "parallel.fragments=16", "parallel.h=32"),
    (LOCAL, "activations=dct_mp"),
    (LOCAL, "overlap=after_backward"),
    (LOCAL, "+watch._target_=harness.config.watch.Watch"),
    (*GOSSIP, "method=topk"),
    (*GOSSIP, "controller=warmup"),
    (*GOSSIP, "workers_per_node=2"),
    (*TIMED, *GOSSIP, VIRTUAL, REPLAY, "network.alike=true"),
    ("controller=cu_target", "controller.agree=min"),
    (LOCAL, "controller=cu_target"),
    (LOCAL, "parallel.lag=1", "emulation.compression=device", PACED, VIRTUAL),
    (LOCAL, "parallel.lag=1", "emulation.interference=2", PACED, VIRTUAL),
    (SERVER, "parallel.threads=2"),
    (SERVER, "parallel.mode=async", "controller.agree=min"),
    (*ASYNC, "compressor=dgc", "error_feedback=false", "parallel.threads=2"),
    (*ASYNC, "workload=dc2_ptb_laptop", "parallel.threads=2"),
    (*ASYNC, "parallel.threads=2", "+watch._target_=harness.config.watch.Watch"),
    (SERVER, "parallel.drain_period=10"),
    ("method=dgc", "error_feedback=true"),
    ("method=dgc", "optimizer.momentum=0.9"),
    (LOCAL, "method=dgc"),
    ("compressor=onebit", "fusion=compressed"),
    ("compressor=acp_sgd", "compressor.rank=null", "fusion=compressed"),
    ("controller=dc2_da1",),
    ("controller.density=0.1",),
    ("method=dc2_da2", "compressor=randomk", "compressor.shared=false", "compressor.shared=true"),
    ("device=cuda", "workers=64"),
    (VIRTUAL, "backend=gloo"),
    (SERVER, "backend=gloo"),
    ("device=cpu", "backend=nccl"),
    ("resume_from=nowhere",),
    ("emulation.compression=device",),
    ("network/device=v100",),
    ("emulation.interference=2",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("row", "overrides"),
    list(zip(CONSTRAINTS, BROKEN, strict=True)),
    ids=[f"{row.key} {row.beside.said}" for row in CONSTRAINTS],
)
def test_every_row_can_be_broken_and_is_told_in_a_line(row: Constraint, overrides) -> None:
    with pytest.raises(BadSetting) as refused:
        checked(settings(*overrides))
    said = str(refused.value)
    computed = said.startswith(f"{row.key}: ")  # in the words of what was asked
    words = re.escape(f"{row.key} must be {row.said()}, got ")
    assert computed or re.match(re.sub(r"\\\{.*?\\\}", ".+", words), said), said
    assert "\n" not in said


def test_no_two_rows_say_the_same() -> None:
    assert len({(row.key, row.said()) for row in CONSTRAINTS}) == len(CONSTRAINTS)


def test_what_a_compressor_may_replace_has_a_row() -> None:
    rows = {row.key for row in CONSTRAINTS if row.why == "which does its work"}
    rows.remove("parallel.outer_momentum")  # of local steps, in place of the optimizer's
    assert {
        key for each in choices("compressor").values() for key in replaces(each["_target_"])
    } == rows


def test_help_shows_every_row() -> None:
    text = shown("constraints")
    assert text.splitlines() == list(reference())
    assert "{" not in text and len(text.splitlines()) > len(CONSTRAINTS)


def test_no_other_file_checks_combinations() -> None:
    """Who refuses a value elsewhere names no other key that it goes, or does not go, with."""
    beside = re.compile(
        r"must .*\b(with|without|beside|over) ([a-z_]+\.[a-z_]+\b|[a-z_.]+=|packets)"
    )
    found = []
    for path in (ROOT / "harness").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr | ast.Constant) and path.name != "constraints.py":
                if beside.search(ast.unparse(node)):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found
