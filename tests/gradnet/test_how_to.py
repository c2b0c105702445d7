"""docs/own_training.md, done as it says."""

import os
import re
import sys
from pathlib import Path

from tests.launching import afresh

ROOT = Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs/own_training.md").read_text()
SCRIPT = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOLD = re.compile(r"^(\d+): density (\S+), (\d+) bytes in \S+ s$", re.MULTILINE)


def test_the_script_of_the_how_to_trains_and_tells(tmp_path):
    [script], [command] = SCRIPT.findall(DOC), COMMAND.findall(DOC)
    (tmp_path / "train.py").write_text(script)
    program, *rest = command.split()
    assert program == "torchrun"
    known = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = afresh([sys.executable, "-m", "torch.distributed.run", *rest], cwd=tmp_path, env=known)
    assert done.returncode == 0, done.stderr
    told = TOLD.findall(done.stdout)
    assert [int(step) for step, _, _ in told] == [4, 9, 14, 19]
    assert all(0 < float(density) < 1 for _, density, _ in told)


def test_three_lines_are_not_plain_torch():
    [script] = SCRIPT.findall(DOC)
    ours = ("import gradnet", "gradnet.attach", "handle.close")
    assert [sum(name in line for line in script.splitlines()) for name in ours] == [1, 1, 1]
