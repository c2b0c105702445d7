"""Published numbers beside measured ones."""

from harness.reporting.claims import published
from tests.claims.tables import row, table


def test_without_runs_there_is_nothing_beside():
    nothing = table(row("adhoc", "allreduce")).iloc[:0]
    assert published.side_by_side(nothing).empty
    assert list(published.side_by_side(nothing)) == list(published.Side._fields)
    assert published.side_by_side(table(row("adhoc", "allreduce"))).empty
