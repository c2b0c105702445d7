"""What replays say of a claim is judged by the rules for runs: fed testbeds and claims by hand."""

import pytest

from harness.fidelity import testbed
from harness.fidelity.cells import Selector
from harness.fidelity.timing import TimingClaim, judged
from harness.reporting.claims.base import (
    BY_CONSTRUCTION,
    FAILS,
    HOLDS,
    NOT_DECIDABLE,
    PREDICTED,
    UNDECIDED,
    Claim,
)
from harness.reporting.claims.lines import counted, lines

READ = {"id": "table1", "model": "VGG-19", "metric": "time"}
OTHER = {"id": "table1", "model": "BERT", "metric": "time"}
STRANGE = {"id": "fig2", "metric": "time"}
BED = testbed.Testbed(
    "by_hand", "", {}, {}, {}, {},
    inputs=[Selector({"id": "table1", "model": "VGG-19"})],
    follows=[],
    repeats=[],
    omissions=[testbed.Omission(Selector({"id": "fig2"}), "figure 2 contradicts table 1")],
)  # fmt: skip


def verdict(holds=True, cells=(OTHER,), id="table1", **more) -> Claim:
    return judged(TimingClaim(id, "so", holds, "1 s", "slower", cells=cells, **more), BED)


@pytest.mark.parametrize(
    ("claim", "wanted", "reason"),
    [
        (verdict(), HOLDS, ""),
        (verdict(False), FAILS, "slower"),
        (verdict(None), UNDECIDED, "slower"),
        (verdict(cells=[READ]), BY_CONSTRUCTION, "read from table1 VGG-19 time"),
        (verdict(False, cells=[READ]), BY_CONSTRUCTION, "calibrated input"),
        (verdict(cells=[STRANGE]), NOT_DECIDABLE, "figure 2 contradicts table 1"),
        (verdict(cells=None, id="fig2"), NOT_DECIDABLE, "figure 2 contradicts table 1"),
        (verdict(cells=[], id="fig2"), HOLDS, ""),  # on nothing that is published
        (verdict(cells=[STRANGE, OTHER]), HOLDS, ""),
        (verdict(undecidable="a bound"), NOT_DECIDABLE, "a bound"),
    ],
)
def test_a_prediction_has_one_of_five_verdicts(claim, wanted, reason):
    assert claim.verdict == wanted and reason in claim.reason
    assert claim.network == PREDICTED


def test_what_is_partly_input_is_judged_and_says_so():
    found = verdict(cells=[READ, OTHER])
    assert found.verdict == HOLDS
    assert found.measured == "1 s; constants were read from table1 VGG-19 time"


def test_a_prediction_stands_in_the_line_of_its_claim():
    runs = Claim("table1", "so", FAILS, "2 s", "slower", network="virtual", scale="laptop")
    both = [runs, verdict(), verdict(id="fig3")]
    found = lines(both)
    assert [(line.id, line.virtual, line.predicted) for line in found] == [
        ("table1", FAILS, HOLDS),
        ("fig3", "", HOLDS),
    ]
    assert found[0].measured == "virtual: 2 s; predicted: 1 s"
    assert counted(both) == {"does not hold in virtual time": 1, "holds by prediction": 2}
