"""Laws of every profile: each choice is tested by being there."""

from functools import cache, partial
from typing import Any

import pytest

from harness.config.search_path import choices
from harness.contract.laws import Case, Law
from harness.contract.profiles import LAWS
from tests import test_settings
from tests.contract import cases

settings = cache(test_settings.settings)


def build(name: str, *overrides: str) -> Any:
    return settings(f"profile={name}", *overrides).build("profile")


@pytest.mark.parametrize("name", choices("profile"))
@pytest.mark.parametrize(("law", "case"), cases(LAWS))
def test_a_profile_keeps_the_law(law: Law, case: Case, name: str) -> None:
    law.holds(partial(build, name), *case)
