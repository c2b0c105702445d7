"""A value of a wrong type is refused where runs are composed, in one line, for every key there is.

The keys are those of conf/ and of every study's: of each file of a group that a run has a part of,
and of conf/config.yaml. The line names the key and the value, and says what is allowed.
"""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from harness.config import sweep
from harness.config.search_path import choices
from harness.config.settings import PARTS, BadSetting, Settings
from harness.config.typed import is_section
from harness.emulation import host

GROUPS = (*PARTS, "tracker")
SCENE = ("network=simulated", "workload=digits_convnet")
NAMES = ("method.name", "scale.name")  # what something is called: any text
OF_A_COMMAND = ("comparison", "seeds", "folder", "typed")  # which no run has


@cache
def composed(*overrides: str) -> dict[str, Any]:
    with sweep.hydra():
        return sweep.plain_settings(sweep.load([*SCENE, *overrides])).config


def differing(group: str) -> Iterator[str]:
    """Choices that have a class and keys which none before them has."""
    seen: set[tuple[str, ...]] = set()
    for name, path in choices(group).items():
        found = yaml.safe_load(path.read_text()) or {}
        schema = (str(found.get("_target_", name)), *sorted(found))
        if schema not in seen:
            yield name
        seen.add(schema)


def leaves(section: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all keys but `_target_`; of a part in a part its own."""
    for key, value in section.items():
        if is_section(value) or (at == () and isinstance(value, dict) and value):
            yield from leaves(value, (*at, key))
        elif not key.startswith("_"):
            yield *at, key


def wrong_for(value: Any) -> Iterator[Any]:
    """Values of types that a key with `value` cannot have."""
    if isinstance(value, (bool, int, float)):
        yield "many"
    yield "many" if isinstance(value, (list, dict)) else [{"many": 1}]


def unrefused(config: dict[str, Any], path: tuple[str, ...], part: str | None) -> Iterator[str]:
    """What is wrong with the answers to wrong values of one key; nothing where all are refused."""
    *above, key = path
    known = config
    for name in above:
        known = known[name]
    for value in wrong_for(known[key]):
        changed = copy.deepcopy(config)
        section = changed
        for name in above:
            section = section[name]
        section[key] = value
        said = answer(Settings(changed), part)
        if "\n" in said or f"{key} must " not in said or repr(value) not in said:
            yield f"{'.'.join(path)}={value!r}: {said or 'accepted'}"


def answer(settings: Settings, part: str | None) -> str:
    try:
        settings.run() if part is None else settings.build(part)
    except BadSetting as refused:
        return str(refused)
    return ""


@pytest.fixture(autouse=True)
def _on_a_machine_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what network=host reads of its launcher and of the machine's routes."""
    monkeypatch.setattr(host, "_interface_to", lambda master: "eth1")
    of_slurm = {"SLURM_NODEID": "0", "SLURM_NNODES": "2", "MASTER_ADDR": "10.0.0.2"}
    for name, value in of_slurm.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("group", GROUPS)
def test_every_key_of_every_part_has_a_type(group: str) -> None:
    found = [
        f"{group}={choice}: {wrong}"
        for choice in differing(group)
        for config in [composed(f"{group}={choice}")]
        for path in leaves({group: config[group]})
        if path != ("controller", "agree")  # the run's own
        for wrong in unrefused(config, path, group)
    ]
    assert not found, "\n".join(found)


def test_every_key_of_a_run_has_a_type() -> None:
    config = composed()
    own = {key: value for key, value in config.items() if key not in (*GROUPS, *OF_A_COMMAND)}
    found = [
        wrong
        for path in leaves(own)
        if ".".join(path) not in NAMES
        for wrong in unrefused(config, path, None)
    ]
    assert not found, "\n".join(found)
