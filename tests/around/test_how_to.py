"""docs/around.md, done as it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.around.settings import KEPT, OWN
from harness.reporting.analysis import load
from tests.launching import popen, runs

ROOT = Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs/around.md").read_text()
SCRIPT = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.launch
def test_the_command_of_the_how_to_leaves_a_run(tmp_path: Path) -> None:
    [script], [command] = SCRIPT.findall(DOC), COMMAND.findall(DOC)
    (tmp_path / "train.py").write_text(script)
    _, *words = shlex.split(command)
    at = words.index("torchrun")
    theirs = [sys.executable, "-m", "torch.distributed.run", *words[at + 1 :]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with popen([sys.executable, *words[:at], *theirs], cwd=tmp_path, **pipes) as process:
        said, _ = process.communicate(timeout=280)
    [run] = runs(tmp_path / "results")
    assert load.steps(run).step.nunique() == 20, said


def test_it_names_every_key() -> None:
    for key in (*OWN, *KEPT):
        assert f"`{key}" in DOC, key
