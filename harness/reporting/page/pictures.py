"""Figures embedded in a page as data addresses, with captions for screen readers."""

from base64 import b64encode
from typing import NamedTuple

from markupsafe import Markup

from harness.reporting.figures import theme


class EmbeddedFigure(NamedTuple):
    """A figure embedded in a page."""

    caption: str
    source: Markup  # data: address
    width: int  # CSS pixels
    height: int


Pictures = dict[str, EmbeddedFigure]  # by file name, in the order in which they are shown
PIXELS_PER_IN = 96


def of(figure: theme.Figure, caption: str, svg: bytes | None = None) -> EmbeddedFigure:
    """Return `figure` embedded with its caption; pass `svg` if it is drawn already."""
    width_in, height_in = figure.get_size_inches()
    return EmbeddedFigure(
        caption,
        data("image/svg+xml", svg or theme.svg(figure)),
        round(PIXELS_PER_IN * width_in),
        round(PIXELS_PER_IN * height_in),
    )


def data(kind: str, content: bytes) -> Markup:
    """Return a data: address that contains `content`, of MIME type `kind`."""
    return Markup(f"data:{kind};base64,{b64encode(content).decode()}")
