"""The command as it is called; what it says of all papers is in `tests.fidelity.test_assess`."""

import re
import sys

from harness.fidelity import __main__ as command
from harness.fidelity.measurement import COLUMNS
from tests.launching import completed

LAST = r"pooled median \d+\.\d % p90 \d+\.\d % over \d+ cells"


def test_a_bad_csv_ends_with_its_line_and_column(tmp_path, monkeypatch, capsys):
    cells = tmp_path / "cells.csv"
    cells.write_text(f"{','.join(COLUMNS)}\ncovap,x,Bert,,30Gbps,64,FP16,T_comm,fast!,ms,table\n")
    monkeypatch.setattr(sys, "argv", ["fidelity", "--cells", str(cells)])
    assert command.main() == 2
    printed = capsys.readouterr()
    assert "line 2, column value" in printed.err and "'fast!'" in printed.err
    assert not printed.out


def test_one_paper_alone():
    command = ["-m", "harness", "study", "fidelity", "--paper", "netsenseml"]
    told = completed([sys.executable, *command], 120)
    assert (told.returncode, told.stderr) == (0, "")
    assert "netsense_table1" in told.stdout and "covap_table1" not in told.stdout
    assert re.fullmatch(LAST, told.stdout.splitlines()[-1])
