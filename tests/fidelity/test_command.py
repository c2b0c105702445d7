"""The command as it is called."""

import re
import sys

import pandas as pd
import pytest

from harness.fidelity import __main__ as command
from harness.fidelity.cells import COLUMNS
from harness.fidelity.timing import timings
from harness.reporting.claims.base import FAILS, HOLDS
from tests.launching import completed

pytestmark = pytest.mark.timeout(900)  # two hundred replays, 90 s of one core
LAST = r"pooled median \d+\.\d % p90 \d+\.\d % over \d+ cells"


def test_it_prints_and_writes_cells_distances_claims_and_a_figure(tmp_path):
    cells = tmp_path / "cells.csv"
    row = "netsenseml,netsense_table2,VGG16,,5Gbps,8,TopK-0.1,training_throughput,90,/s,table"
    cells.write_text(f"{','.join(COLUMNS)}\n{row}\n")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "harness.fidelity", "--cells", cells, "--out", out]
    told = completed(command, 900)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert re.fullmatch(LAST, lines[-1])
    assert any(line.startswith("further cells") and "over 1 cells" in line for line in lines)
    assert "does not hold" in told.stdout and "netsense_table2" in told.stdout
    written = pd.read_csv(out / "fidelity.csv", keep_default_na=False)
    assert list(written) == [
        *COLUMNS,
        *("predicted", "error_percent", "printed_error_percent", "standing", "why", "further"),
    ]
    assert written.further.sum() == 1
    counted = (written.standing == "counts").sum()
    assert lines[-1].endswith(f"over {counted} cells")
    assert (out / "fidelity.png").stat().st_size and (out / "fidelity.pdf").stat().st_size


def test_a_bad_csv_ends_with_its_line_and_column(tmp_path, monkeypatch, capsys):
    cells = tmp_path / "cells.csv"
    cells.write_text(f"{','.join(COLUMNS)}\ncovap,x,Bert,,30Gbps,64,FP16,T_comm,fast!,ms,table\n")
    monkeypatch.setattr(sys, "argv", ["fidelity", "--cells", str(cells)])
    assert command.main() == 2
    printed = capsys.readouterr()
    assert "line 2, column value" in printed.err and "'fast!'" in printed.err
    assert not printed.out


def test_one_paper_alone(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fidelity", "--paper", "netsenseml"])
    assert command.main() == 0
    printed = capsys.readouterr().out
    assert "netsense_table1" in printed and "covap_table1" not in printed
    assert re.fullmatch(LAST, printed.splitlines()[-1])


@pytest.fixture(scope="module")
def verdicts():
    return {(claim.id, claim.text): claim for each in timings().values() for claim in each.claims()}


def test_every_claim_has_its_numbers(verdicts):
    assert len(verdicts) > 40
    assert all(claim.measured for claim in verdicts.values())
    assert {claim.verdict for claim in verdicts.values()} == {HOLDS, FAILS}


@pytest.mark.parametrize(
    ("name", "start", "holds"),
    [
        ("covap_table7", "COVAP is the fastest", False),  # on VGG-19 it is PowerSGD
        ("acp_table3", "ACP-SGD is the fastest", True),
        ("netsense_table1", "NetSenseML has the highest", True),
        ("netsense_table1", "TopK-0.1 loses to AllReduce", True),
        ("netsense_table1", "TopK-0.1 beats AllReduce at 200", False),
        ("dc2_fig8b", "static LSTM: DA2", True),
    ],
)
def test_the_main_claims(verdicts, name, start, holds):
    (claim,) = (c for (i, text), c in verdicts.items() if i == name and text.startswith(start))
    assert (claim.verdict == HOLDS) is holds
