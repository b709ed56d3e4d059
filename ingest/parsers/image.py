"""Pictures by OCR: a page per picture, several in a TIFF."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from ingest.layout import find_title, lay_out_pages
from ingest.lines import PageContent, TextLine
from ingest.ocr import OcrEngine, mean_confidence
from ingest.paged import parse_paged
from kb.errors import DamagedFileError, NoTextFoundError, TooManyPagesError, UnsupportedFormatError
from kb.ports import PageProgress
from kb.types import Box, ParsedDocument, TextSource

_DEFAULT_DPI = 150.0
_MAX_PIXELS = 100_000_000
_MAX_SIDE_PIXELS = 4000
_POINTS_PER_INCH = 72.0


class ImageParser:
    """Reads pictures; `engine` None means that OCR is switched off."""

    def __init__(self, *, media_type: str, engine: OcrEngine | None, max_pages: int) -> None:
        self._media_type = media_type
        self._engine = engine
        self._max_pages = max_pages

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `DamagedFileError`, `NoTextFoundError`, `TooManyPagesError`, `UnsupportedFormatError`."""
        return parse_paged(self, path, name=name, password=password, progress=progress)

    @contextmanager
    def open(self, path: Path, *, name: str, password: str | None) -> Iterator[ImageSource]:
        """See `ingest.paged.PagedParser`."""
        del password
        if self._engine is None:
            raise UnsupportedFormatError(
                f"{name!r} is a picture and OCR is switched off",
                next_step="Set KB_OCR=true and upload it again.",
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _as_damaged(name), Image.open(path) as picture:
                total = getattr(picture, "n_frames", 1) if self._media_type == "image/tiff" else 1
                if total > self._max_pages:
                    raise TooManyPagesError(f"{name!r} has {total} pictures, the limit is {self._max_pages}")
                yield ImageSource(
                    picture, self._engine, name=name, media_type=self._media_type, page_count=total
                )


class ImageSource:
    """An open picture; see `ingest.paged.PageSource`."""

    def __init__(
        self, picture: Image.Image, engine: OcrEngine, *, name: str, media_type: str, page_count: int
    ) -> None:
        self._picture = picture
        self._engine = engine
        self._name = name
        self._media_type = media_type
        self._page_count = page_count

    @property
    def page_count(self) -> int:
        """How many pictures are in the file."""
        return self._page_count

    def read_page(self, page_number: int) -> PageContent:
        """Return what OCR reads in one picture."""
        with _as_damaged(self._name):
            if page_number > 1 or self._picture.tell() > 0:
                self._picture.seek(page_number - 1)
            return _read(self._picture, page_number, self._engine)

    def assemble(self, contents: Sequence[PageContent]) -> ParsedDocument:
        """Lay the pictures' lines out."""
        pages = lay_out_pages(contents)
        if not any(page.text for page in pages):
            raise NoTextFoundError(f"no text was found in the picture {self._name!r}")
        return ParsedDocument(pages=tuple(pages), media_type=self._media_type, title=find_title(pages))


@contextmanager
def _as_damaged(name: str) -> Iterator[None]:
    try:
        yield
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise DamagedFileError(f"{name!r} cannot be opened as a picture: {error}") from error


def lines_from_picture(
    image: npt.NDArray[np.uint8], engine: OcrEngine, *, points_per_pixel: float
) -> tuple[tuple[TextLine, ...], float | None]:
    """Return the lines of a picture, boxes in points, and the mean confidence."""
    found = engine.read(image)
    lines = tuple(
        TextLine(
            text=line.text,
            box=Box(
                *(
                    round(v * points_per_pixel, 2)
                    for v in (line.box.x0, line.box.y0, line.box.x1, line.box.y1)
                )
            ),
            # OCR boxes stand about a third taller than the type.
            size=max(
                min(line.box.y1 - line.box.y0, line.box.x1 - line.box.x0) * points_per_pixel * 0.75, 1.0
            ),
        )
        for line in found
    )
    return lines, mean_confidence(found)


def _read(frame: Image.Image, number: int, engine: OcrEngine) -> PageContent:
    if frame.width * frame.height > _MAX_PIXELS:
        raise ValueError(f"{frame.width} × {frame.height} pixels are too many")
    dpi = float(frame.info.get("dpi", (_DEFAULT_DPI, _DEFAULT_DPI))[0] or _DEFAULT_DPI)
    upright = ImageOps.exif_transpose(frame)
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        layer = upright.convert("RGBA")
        ground = Image.new("RGBA", layer.size, "white")
        upright = Image.alpha_composite(ground, layer)
    rgb = upright.convert("RGB")
    points_per_pixel = _POINTS_PER_INCH / (dpi if dpi >= 50 else _DEFAULT_DPI)
    width, height = rgb.width * points_per_pixel, rgb.height * points_per_pixel
    if max(rgb.size) > _MAX_SIDE_PIXELS:
        rgb.thumbnail((_MAX_SIDE_PIXELS, _MAX_SIDE_PIXELS))
        points_per_pixel = width / rgb.width
    lines, confidence = lines_from_picture(np.asarray(rgb), engine, points_per_pixel=points_per_pixel)
    return PageContent(
        page_number=number,
        width=round(width, 2),
        height=round(height, 2),
        lines=lines,
        source=TextSource.OCR,
        ocr_confidence=confidence,
    )
