"""Laws of every compressor: each yaml of conf/compressor is tested by being there.

Bytes on the wire, and what a compressor promises beyond this, are in its own test file.
"""

from functools import partial

import pytest

from harness.contract.compressors import LAWS
from harness.contract.laws import Case, Law
from tests.compressors.reductions import build, variants
from tests.contract import cases


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize(("law", "case"), cases(LAWS))
def test_a_compressor_keeps_the_law(law: Law, case: Case, variant: str) -> None:
    law.holds(partial(build, variant), *case)
