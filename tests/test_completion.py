"""Shells complete commands, groups, choices and keys by a script made from conf/."""

import shutil
import subprocess

import pytest

from harness.cli.commands import COMMANDS
from harness.cli.completion import SHELLS, script
from harness.config.search_path import choices, groups
from tests.door import door

COMPLETED = """
COMP_LINE=$1 COMP_POINT=${#1}
compopt() { :; }
_gradnet
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line: str) -> list[str]:
    """Return what bash offers at the end of a line."""
    text = script("bash", tuple(COMMANDS)) + COMPLETED
    answer = subprocess.run(["bash", "-c", text, "bash", line], capture_output=True, text=True)
    assert answer.stderr == "", answer.stderr
    return answer.stdout.split()


@pytest.mark.parametrize(("line", "words"), [
    ("gradnet rep", ["report", "report="]),
    ("gradnet comp", ["compressor.", "compressor="]),
    ("gradnet optimizer.l", ["optimizer.lr="]),
    ("gradnet workers=2 profile.rate", ["profile.rate_mbit="]),
    ("gradnet +exp", ["+experiment="]),
    ("gradnet --comp", ["--completion"]),
    ("gradnet nosuch", []),
])  # fmt: skip
def test_bash_completes_words_without_a_value(line: str, words: list[str]) -> None:
    assert completed(line) == words


@pytest.mark.parametrize("group", groups())
def test_bash_completes_every_choice_of_a_group(group: str) -> None:
    plus = "+" if group == "experiment" else ""
    assert completed(f"gradnet {plus}{group}=") == list(choices(group))


def test_every_shell_has_all_commands_and_a_script_that_it_can_read() -> None:
    for shell in SHELLS:
        text = script(shell, tuple(COMMANDS))
        assert " ".join(COMMANDS) in text and "compressor=topk" in text
        assert not {"NAMES", "KEYS", "VALUES"} & set(text.split())
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=text, text=True, check=True)


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert door("--completion", "bash") == 0
    assert capsys.readouterr().out == script("bash", tuple(COMMANDS)) + "\n"
    assert door("--completion", "tcsh") == 1
    assert "--completion must be one of bash, zsh, fish, got 'tcsh'" in capsys.readouterr().err
