"""The fixed density."""

import pytest

from controllers.fixed import Fixed


def test_it_never_changes() -> None:
    controller = Fixed(density=0.25)
    assert controller.density(None) == 0.25
    assert controller.state() == {}
    assert controller.same_everywhere


@pytest.mark.parametrize("density", [0, -0.1, 1.001, float("nan"), "high"])
def test_what_it_refuses(density: float) -> None:
    with pytest.raises(ValueError, match=rf"density must be in \(0, 1\], got {density!r}"):
        Fixed(density)
