"""A key that came later, at the value that was so before it, changes neither run nor comparison."""

import copy

import pytest

from harness import agreement, later, load
from harness.settings import Settings
from tests.test_settings import settings


def before(config: dict, keys: tuple[str, ...]) -> dict:
    """`config` as a run from before that key wrote it."""
    older = copy.deepcopy(config)
    inner = older
    for name in keys[:-1]:
        inner = inner[name]
    inner.pop(keys[-1], None)
    return older


@pytest.mark.parametrize("keys", later.KEYS, ids=".".join)
def test_a_run_from_before_a_key_is_the_one_that_has_it_as_it_was(keys):
    now = settings("steps=7").config
    older = before(now, keys)
    assert Settings(older).identity() == Settings(now).identity()
    assert agreement.identity_of(older) == agreement.identity_of(now)
    assert load._conditions(older) == load._conditions(now)
    other = copy.deepcopy(now)
    inner = other
    for name in keys[:-1]:
        inner = inner[name]
    inner[keys[-1]] = 0.5
    assert Settings(other).identity() != Settings(now).identity()


def test_nothing_is_taken_from_the_configuration_itself():
    now = settings("steps=7").config
    copied = copy.deepcopy(now)
    later.without(now)
    assert now == copied
