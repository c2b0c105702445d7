"""Laws of `harness.contract` as parameters of tests."""

from collections.abc import Iterable

from _pytest.mark import ParameterSet
from pytest import param

from harness.contract.laws import Law


def cases(laws: Iterable[Law]) -> list[ParameterSet]:
    """Return every law with each of its cases, named by both."""
    return [
        param(law, case, id="-".join([law.holds.__name__, *map(str, case)]))
        for law in laws
        for case in law.cases
    ]
