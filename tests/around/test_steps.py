"""Every line that matches counts, or the run tells how many did not: counters of all kinds."""

from typing import Any

import pytest

from harness.around import verdict
from harness.around.settings import Command, composed
from harness.around.told import ToldStep, ToldSteps
from harness.config.settings import BadSetting

LOSS = r"step (?P<step>\d+) loss (?P<loss>\S+)|acc (?P<accuracy>\S+)"
OF_EPOCH = r"\[\d+\]\[(?P<step>\d+)/\d+\] loss (?P<loss>\S+)|acc (?P<accuracy>\S+)"
BY_EPOCH = r"\[(?P<epoch>\d+)\]\[(?P<step>\d+)/\d+\] loss (?P<loss>\S+)"


def finished(pattern: str, lines: list[str], processes: int = 1) -> tuple[list, ToldSteps]:
    """Steps of lines that come every 0.1 s, and what did not count."""
    told = ToldSteps(Command(("x",), "first_byte", pattern, None, None, None), processes)
    for number, line in enumerate(lines):
        told.take(line, 0.1 * number)
    return told.finish(0.1 * len(lines), 1.0), told


def epochs(counts: Any, of: int = 4, more: str = "") -> list[str]:
    return [
        line
        for epoch in range(of)
        for line in [*(f"[{epoch}][{n}/9] loss 1" for n in counts), *filter(None, [more])]
    ]


def steps(*counts: Any) -> list[str]:
    return [f"step {count} loss 0.5" for count in counts]


COUNTED = {  # pattern, lines, numbers of steps
    "anew in every epoch": (OF_EPOCH, epochs(range(5)), range(20)),
    "anew, from 1": (OF_EPOCH, epochs(range(1, 6)), range(1, 21)),
    "anew, every tenth step": (OF_EPOCH, epochs(range(0, 50, 10), 2), range(0, 100, 10)),
    "epochs of one step, by name": (BY_EPOCH, epochs([0]), range(4)),
    "epochs by a line of their own": (r"epoch (?P<epoch>\d+)|step (?P<step>\d+)",
                                      ["epoch 1", "step 7", "epoch 2", "step 7", "step 8"],
                                      [7, 8, 9]),
    "on and on beside an epoch": (BY_EPOCH, [f"[{n // 2}][{n}/9] loss 1" for n in range(6)],
                                  range(6)),
    "resumed": (LOSS, steps(*range(500, 505)), range(500, 505)),
    "every tenth step": (LOSS, steps(0, 10, 20), [0, 10, 20]),
    "thousands": (LOSS, steps("900", "1,000", "1_100", "1.2k", "1.3e3"), range(900, 1400, 100)),
    "thousands, by less than the line": (r"step (?P<step>\d+)", steps("999", "1,000"), [999, 1000]),
    "of all": (r"step (?P<step>\S+)", steps("3/5", "4/5"), [3, 4]),
    "no counter": (r"loss (?P<loss>\S+)", steps("a", "b", "c"), [0, 1, 2]),
    "fractions of an epoch beside": (r"'loss': (?P<loss>[\d.]+), 'epoch': (?P<epoch>[\d.]+)",
                                     [f"{{'loss': 0.5, 'epoch': {n / 4}}}" for n in range(6)],
                                     range(6)),
    "metrics alone": (r"acc (?P<accuracy>\S+)", ["acc 0.1", "acc 0.2"], [0, 1]),
    "two lines a step": (r"loss (?P<loss>\S+)|took (?P<samples>\d+)",
                         ["loss 1", "took 8", "loss 2", "took 8"], [0, 1]),
    "columns": (r"^(?P<step>\d+),\d+,(?P<loss>\S+)", ["98,128,256", "99,128,256"], [98, 99]),
}  # fmt: skip
UNCOUNTED = {  # pattern, lines, how many do not count, what the reason names
    "fractions of an epoch": (r"step (?P<step>\d+)", steps(0, 0.5, 1, 1.5), 2, "step 0.5 loss"),
    "fractions, by less than the line": (LOSS, steps(0, 0.5, 1, 1.5), 2, "step 0.5 loss"),
    "no number from some step on": (LOSS, [*steps(0, 1), "step 2 loss n/a"], 1, "step 2 loss n/a"),
    "nan that the pattern has no place for": (r"step (?P<step>\d+) loss (?P<loss>[\d.]+)",
                                              [*steps(0, 1), "step 2 loss nan", "step 3 loss nan"],
                                              2, "step 2 loss nan"),
    "nan for a step": (r"step (?P<step>\S+)", steps(0, "nan"), 1, "step nan"),
    "percent": (LOSS, [*steps(0), "acc 95%"], 1, "acc 95%"),
    "ranks that say the same": (LOSS, steps(0, 0, 1, 1, 2, 2), 3, "step 0"),
    "steps done again": (LOSS, steps(*range(6), 3, 4, 5, 6), 3, "step 3"),
    "a thousand as in German": (LOSS, steps(998, 999, "1.000", "1.001"), 2, "step 1.000"),
    "a group that took no part": (r"step (?P<step>\d+)|done", [*steps(0, 1), "done"], 1, "done"),
}  # fmt: skip


@pytest.mark.parametrize("kind", COUNTED)
def test_every_line_of_a_counter_is_a_step(kind: str) -> None:
    pattern, lines, numbers = COUNTED[kind]
    made, told = finished(pattern, lines)
    assert [step.step for step in made] == list(numbers) and told.uncounted == {}


@pytest.mark.parametrize("kind", UNCOUNTED)
def test_lines_that_do_not_count_are_counted(kind: str) -> None:
    pattern, lines, number, first = UNCOUNTED[kind]
    made, told = finished(pattern, lines)
    evidence: Any = type("Evidence", (), {"uncounted": told.uncounted})
    [reason] = verdict._uncounted(evidence)
    assert reason.startswith(f"{number} line") and first in reason


def test_evaluations_are_of_the_step_before_them() -> None:
    _, told = finished(OF_EPOCH, ["acc 0.1", *epochs(range(5), more="acc 0.5")])
    assert [each.step for each in told.evaluations] == [0, 5, 10, 15, 20]


def test_one_line_may_tell_of_a_step_and_evaluate_it() -> None:
    made, told = finished(LOSS, ["step 3 loss 0.5 acc 0.25"])
    assert [step.loss for step in made] == [0.5]
    assert [(each.step, each.value) for each in told.evaluations] == [(4, 0.25)]


def test_processes_of_a_node_may_all_print() -> None:
    """Unless only some of their lines come again: then these are of something else."""
    twice = [line for line in epochs(range(5)) for _ in range(2)]
    made, told = finished(OF_EPOCH, twice, processes=2)
    assert [step.step for step in made] == list(range(20)) and told.uncounted == {}
    made, told = finished(OF_EPOCH, epochs(range(5)), processes=2)
    assert [step.step for step in made] == list(range(20)) and told.uncounted == {}
    _, told = finished(LOSS, steps(0, 1, 2, 2, 3, 4), processes=2)
    assert [lines for lines, _ in told.uncounted.values()] == [1]


def test_steps_are_counted_from_where_a_trainer_goes_on() -> None:
    """Samples and bytes of a step are of no step that another run has made."""
    for counts, made in (((500, 501, 502), 3), ((0, 1, 2), 3), ((10, 20, 30), 30), ((500,), 501)):
        assert sum(step.samples for step in finished(LOSS, steps(*counts))[0]) == made


def test_a_line_of_no_step_is_none() -> None:
    others = ["loaded 1,024 MB in 0.5 s", "test 0.5 loss nan", "epoch 3", "", "step by step"]
    made, told = finished(LOSS, [*others, *steps(0), *others])
    assert [step.step for step in made] == [0] and told.uncounted == {}


def test_a_pattern_that_every_line_has_is_refused() -> None:
    with pytest.raises(BadSetting, match="metrics must not match an empty line"):
        composed([r"metrics=(step (?P<step>\d+))?", "--", "true"])


def test_a_command_without_a_pattern_is_one_step() -> None:
    told = ToldSteps(Command(("x",), "first_byte", None, None, 64, None))
    [step] = told.finish(3.0, 1.0)
    assert step[:3] == (3.0, 3.0, 0) and (step.samples, step.steps) == (64, 1)
    assert isinstance(step, ToldStep)
