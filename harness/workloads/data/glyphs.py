"""Characters of unseen type faces: 32 x 32 grey images of matplotlib's fonts.

The characters are letters, digits and signs that all faces have and that look different in each.
Composed characters of Unicode are left out. An image is a character of a face after an affine map,
blur and noise. Integer arithmetic and Pillow draw it from a seeded generator: equal fields, fonts
and Pillow give equal bytes. The images are made once and kept.
"""

import hashlib
import logging
import time
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from harness.workloads.data.base import MOST_MADE, Shape
from harness.workloads.data.kept import alone, cache_folder, replacing
from harness.workloads.data.samples import InMemory
from profiles.limits import check_between

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger("harness")
FORMAT = 1  # of how it is made; to be raised when that changes
TRAIN, TEST = 0, 1
SIDE = 32  # px of an image
DRAWN = 2 * SIDE  # px that a character is drawn and mapped in, before it is halved
FONT_PX, BASELINE = 50, 47  # font size, and baseline in px from the top
KINDS = "LNPS"  # Unicode's letters, numbers, punctuation and symbols
STRETCH, SLANT, SHIFT = 0.15, 0.2, 4.0  # at most: of each axis, of one by the other, px as drawn
BLUR_PX = 1.6  # deviation at most, as drawn
SUMMED = 4  # uniform bytes that one value of noise is the sum of
MEAN, DEVIATION = 0.14, 0.24  # of the pixels of the default's training images, about
FACES = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)  # of matplotlib, those with the letters of Latin, Greek and Cyrillic
HELD_OUT = ("DejaVuSans-BoldOblique", "DejaVuSansMono", "DejaVuSerif-Italic", "STIXGeneralBol")


@dataclass(frozen=True)
class Glyphs:
    """`length` training images of some faces and `test_length` of others, with balanced classes."""

    name: str = "glyphs"
    classes: int = 200  # characters, evenly taken of all that there are
    length: int = 40_000
    test_length: int = 10_000
    noise: float = 0.15  # deviation; black is 0, white is 1
    seed: int = 0
    cache: str | None = None
    metric: ClassVar[str] = "accuracy"
    shape: ClassVar[Shape] = (1, SIDE, SIDE)

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= 1000:
            raise ValueError(f"classes must be in [2, 1000], got {self.classes}")
        for key in ("length", "test_length"):
            check_between(self.classes, MOST_MADE, **{key: getattr(self, key)})
        if not 0 <= self.noise <= 1:
            raise ValueError(f"noise must be in [0, 1], got {self.noise}")

    @property
    def published(self) -> int:
        return self.length

    def check(self) -> None:
        missing = [path for path in self._fonts() if not path.is_file()]
        if missing:
            raise FileNotFoundError(
                f"{self.name}: no font {missing[0]}. Faces of matplotlib come with it: install it "
                "anew"
            )

    def train(self) -> InMemory:
        return self._splits()[0]

    def test(self) -> InMemory:
        return self._splits()[1]

    def trained_faces(self) -> list[Path]:
        """Font files of the training images."""
        return [_font(face) for face in FACES if face not in HELD_OUT]

    def tested_faces(self) -> list[Path]:
        """Font files of the test images."""
        return [_font(face) for face in HELD_OUT]

    def _fonts(self) -> list[Path]:
        return self.trained_faces() + self.tested_faces()

    def _splits(self) -> tuple[InMemory, InMemory]:
        """Return both splits from the kept file, which is made if it is missing or damaged."""
        self.check()
        path = cache_folder(self.cache) / f"glyphs-{self._key()}.npz"
        with alone(path):
            found = _read(path)
            if found is None:
                began = time.monotonic()
                found = self._made()
                with replacing(path) as temporary, temporary.open("wb") as file:
                    np.savez(file, train=found["train"], test=found["test"])
                took = time.monotonic() - began
                log.info("made %s in %.1f s, kept as %s", self.name, took, path)
        return self._samples(found["train"]), self._samples(found["test"])

    def _key(self) -> str:
        """Return the kept file's name: a hash of fields, constants, fonts and drawing code."""
        from PIL import __version__, features

        told = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.name != "cache"]
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in self._fonts()]
        drawn_by = [__version__, str(features.version("freetype2")), unicodedata.unidata_version]
        constants = [FORMAT, SIDE, DRAWN, FONT_PX, BASELINE, STRETCH, SLANT, SHIFT, BLUR_PX, SUMMED]
        whole = "\n".join([*map(str, constants), *told, *digests, *drawn_by])
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def _made(self) -> dict[str, np.ndarray]:
        """Return images of both splits, uint8 [n, SIDE, SIDE]; image i has class i % classes."""
        drawings = drawn(self._fonts(), self.classes)
        first = len(self.trained_faces())
        return {
            "train": self._images(drawings[:first], self.length, TRAIN),
            "test": self._images(drawings[first:], self.test_length, TEST),
        }

    def _images(self, drawings: np.ndarray, length: int, split: int) -> np.ndarray:
        from PIL import Image

        source = np.random.default_rng([self.seed, split])
        images = np.empty((length, SIDE, SIDE), np.uint8)
        faces, uniform = source.integers(len(drawings), size=length), source.random((length, 7))
        for number, (face, numbers) in enumerate(zip(faces, uniform.tolist(), strict=True)):
            image = Image.fromarray(drawings[face, number % self.classes])
            images[number] = np.asarray(_mapped(image, numbers))
        return _noisy(images, self.noise, source)

    def _samples(self, images: np.ndarray) -> InMemory:
        labels = torch.arange(len(images)) % self.classes
        return InMemory(torch.from_numpy(images)[:, None], labels, _prepared)


def _prepared(images: Tensor, source: torch.Generator) -> Tensor:
    return (images / 255 - MEAN) / DEVIATION


def _font(face: str) -> Path:
    """Return matplotlib's file of font `face`, without importing it; FileNotFoundError if none."""
    found = find_spec("matplotlib")
    if found is None or found.origin is None:
        raise FileNotFoundError("glyphs: matplotlib, whose fonts it draws, is not installed")
    return Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{face}.ttf"


def characters(fonts: Sequence[Path]) -> list[str]:
    """Return the characters that all `fonts` have, by code point, without composed ones."""
    from fontTools.ttLib import TTFont

    shared = set.intersection(*(set(TTFont(font, lazy=True).getBestCmap()) for font in fonts))
    return [
        char
        for char in map(chr, sorted(shared))
        if unicodedata.category(char)[0] in KINDS and not unicodedata.decomposition(char)
    ]


def drawn(fonts: Sequence[Path], classes: int) -> np.ndarray:
    """Draw `classes` characters in every font: uint8 [fonts, classes, DRAWN, DRAWN].

    Skip a character if a font lacks it, or draws it like an earlier one (such as the Greek A).
    Raise ValueError if fewer than `classes` remain.
    """
    seen: list[set[bytes]] = [{bytes(DRAWN * DRAWN)} for _ in fonts]
    kept: list[list[np.ndarray]] = []
    pens = [_pen(font) for font in fonts]
    for char in characters(fonts):
        found = [pen(char) for pen in pens]
        each = [image.tobytes() for image in found]
        if not any(bits in before for bits, before in zip(each, seen, strict=True)):
            kept.append(found)
            for bits, before in zip(each, seen, strict=True):
                before.add(bits)
    if len(kept) < classes:
        raise ValueError(
            f"dataset.classes must be in [2, {len(kept)}], the characters that all faces have and "
            f"draw differently, got {classes}"
        )
    taken = [kept[number * len(kept) // classes] for number in range(classes)]
    return np.stack([np.stack(face) for face in zip(*taken, strict=True)])


def _pen(font: Path) -> Callable[[str], np.ndarray]:
    """Return a function that draws a character in white on black, uint8 [DRAWN, DRAWN]."""
    from PIL import Image, ImageDraw, ImageFont

    face = ImageFont.truetype(font, FONT_PX, layout_engine=ImageFont.Layout.BASIC)

    def draw(char: str) -> np.ndarray:
        image = Image.new("L", (DRAWN, DRAWN))
        ImageDraw.Draw(image).text((DRAWN / 2, BASELINE), char, 255, face, anchor="ms")
        return np.asarray(image)

    return draw


def _mapped(image: "Image.Image", uniform: Sequence[float]) -> "Image.Image":
    """Return a Pillow image after a random affine map about its centre, blurred, and halved.

    `uniform` are seven numbers in [0, 1).
    """
    from PIL import Image, ImageFilter  # slow to import

    *signed, blur = uniform
    x_x, y_y, x_y, y_x, right, down = (2 * each - 1 for each in signed)
    rows = ((1 + STRETCH * x_x, SLANT * x_y, right), (SLANT * y_x, 1 + STRETCH * y_y, down))
    centre = DRAWN / 2
    told = [(a, b, centre * (1 - a - b) + SHIFT * by) for a, b, by in rows]
    moved = image.transform(image.size, Image.Transform.AFFINE, (*told[0], *told[1]),
                            Image.Resampling.BILINEAR)  # fmt: skip
    return moved.filter(ImageFilter.GaussianBlur(BLUR_PX * blur)).reduce(2)


def _noisy(images: np.ndarray, noise: float, source: np.random.Generator) -> np.ndarray:
    """Add nearly normal noise to `images`, clipped to [0, 255], in integer arithmetic."""
    scale = round(noise * 255 / (SUMMED * (256**2 - 1) / 12) ** 0.5 * 65536)
    found = np.empty_like(images)
    for part in _parts(len(images)):
        drawn = source.integers(256, size=(SUMMED, *images[part].shape), dtype=np.uint8)
        centred = drawn.sum(axis=0, dtype=np.int64) - SUMMED * 255 // 2
        found[part] = (images[part] + (centred * scale >> 16)).clip(0, 255)
    return found


def _parts(length: int, most: int = 1024) -> Iterator[slice]:
    """Yield slices of at most `most`, so that noise is never made for all images at once."""
    return (slice(first, min(first + most, length)) for first in range(0, length, most))


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """Return the kept images if their checksums match, or None."""
    try:
        with np.load(path) as stored:
            return {name: stored[name] for name in ("train", "test")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        log.warning("%s is damaged, and made anew", path)
        return None
