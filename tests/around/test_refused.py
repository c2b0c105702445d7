"""What cannot be is told in one line, before anything starts."""

from pathlib import Path

import pytest

from harness.around.settings import composed
from harness.config.settings import BadSetting

REFUSED = {
    "workers=2": "a command must come after --",
    "workers=2 --": "a command must come after --, got nothing",
    "-- no_such_program x.py": "no_such_program: command not found",
    "metrics=(?P<step -- true": "metrics must be a regular expression",
    r"metrics=step\d+ -- true": "metrics must have named groups, as",
    "start=*x -- true": "start must be a regular expression, got '*x'",
    "network=simulated -- true": "virtual time has no packets that a command could send",
    "network=host -- true": "network must be netns, dumbbell or wan, got host",
    "method=topk -- true": "method is the command's own; keys here: name",
    "metric=x -- true": "there is no key 'metric'; did you mean metrics",
    "profile.rat_mbit=3 -- true": "nearest: rate_mbit",
    "profile=degradin -- true": "profile has no choice 'degradin'; nearest: degrading",
    "workers=3 workers_per_node=2 -- true": "workers_per_node must be a divisor of workers, got 2",
    "workers=0 -- true": "workers must be a whole number in",
    "seed=1,2 -- true": "several values are a sweep, which needs -m",
    "sends_bytes=-4 -- true": "sends_bytes must be a whole number of 1 or more, got '-4'",
    "target.value=90 target.metric=accuracy -- true": "target.value must be in (0, 1] for accuracy",
    "--verbose -- true": "options must be of --help and -m, got --verbose",
}


@pytest.mark.parametrize("line", REFUSED)
def test_bad_input_is_told_in_one_line(line: str) -> None:
    with pytest.raises(BadSetting) as refused:
        composed(line.split())
    assert REFUSED[line] in str(refused.value) and "\n" not in str(refused.value)


def test_a_name_tells_commands_apart_and_not_their_seeds(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("one")

    def of(*words: str, seed: int = 0) -> tuple[str, str]:
        [found] = composed([f"seed={seed}", "--", "python", str(script), *words])
        return found["method.name"], found.run_id()

    (name, first), (other, _) = of("--lr", "0.1"), of("--lr", "0.2")
    assert (name, other) == ("train_lr_0.1", "train_lr_0.2")
    assert of("--seed", "{seed}", seed=1)[0] == of("--seed", "{seed}", seed=2)[0] == "train"
    script.write_text("two")
    assert of("--lr", "0.1") != (name, first) and of("--lr", "0.1")[0] == name
