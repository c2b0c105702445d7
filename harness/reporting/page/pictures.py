"""Figures as a page holds them: in the page itself, with words for those who cannot see them."""

from base64 import b64encode
from typing import NamedTuple

from markupsafe import Markup

from harness.reporting.figures import theme


class EmbeddedFigure(NamedTuple):
    """A figure in a page."""

    caption: str
    source: Markup  # data: address
    width: int  # CSS pixels
    height: int


Pictures = dict[str, EmbeddedFigure]  # by file name, in the order in which they are shown
PIXELS_PER_IN = 96


def of(figure: theme.Figure, caption: str, svg: bytes | None = None) -> EmbeddedFigure:
    """`figure` in a page, with what it shows in words; `svg` where it is drawn already."""
    width_in, height_in = figure.get_size_inches()
    return EmbeddedFigure(
        caption,
        data("image/svg+xml", svg or theme.svg(figure)),
        round(PIXELS_PER_IN * width_in),
        round(PIXELS_PER_IN * height_in),
    )


def data(kind: str, content: bytes) -> Markup:
    """An address that holds `content`, of MIME type `kind`, itself."""
    return Markup(f"data:{kind};base64,{b64encode(content).decode()}")
