"""The fixed density."""

from controllers.fixed import Fixed


def test_it_never_changes() -> None:
    controller = Fixed(density=0.25)
    assert controller.density(None) == 0.25
    assert controller.state() == {}
    assert controller.same_everywhere
