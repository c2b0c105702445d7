"""Laws of every controller: each yaml of conf/controller is tested by being there."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from harness.contract.controllers import LAWS
from harness.contract.controllers import delays as delays
from harness.contract.controllers import observation as observation
from harness.contract.laws import Case, Law
from tests.contract import cases

CHOICES = {path.stem: path for path in sorted(Path("conf/controller").glob("*.yaml"))}
RUN = {  # the keys of a run that a controller may refer to
    "seed": 0,
    "workers": 4,
    "workers_per_node": 1,
    "profile": OmegaConf.load("conf/profile/static.yaml"),
}


def build(name: str) -> Any:
    return instantiate(OmegaConf.merge(RUN, {"part": OmegaConf.load(CHOICES[name])}).part)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize(("law", "case"), cases(LAWS))
def test_a_controller_keeps_the_law(law: Law, case: Case, name: str) -> None:
    law.holds(partial(build, name), *case)
