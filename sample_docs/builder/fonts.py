"""The CJK font: where it is, and line breaking for text set in it."""

from __future__ import annotations

import re
from pathlib import Path

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

CJK = "SampleCJK"
FONT_NAME = "wqy-microhei.ttc"
INSTALL = "apt-get install fonts-wqy-microhei"
_FOLDERS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".local/share/fonts")

# A code, a word or a quantity with its unit stays on one line.
_ATOM = re.compile(r"[0-9][0-9.,～±×-]*(?: (?=[A-Za-z%°]))[A-Za-z%°/³²·]+|[!-~±×°²³～]+| |.", re.DOTALL)
_NO_START = set("，。、；：？！）》」』】”’…")
_NO_END = set("（《「『【“‘")


class FontMissingError(Exception):
    """The font is not on this machine."""


def find_font(given: Path | None) -> Path:
    """Return the font's path: the one given, else the first of that name in the system's font folders."""
    if given is not None:
        if given.is_file():
            return given
        raise FontMissingError(f"no font at {given}")
    for folder in _FOLDERS:
        for path in sorted(folder.rglob(FONT_NAME)) if folder.is_dir() else ():
            return path
    raise FontMissingError(f"the font {FONT_NAME} is not installed; try: {INSTALL}")


def register_font(path: Path) -> None:
    """Make the font known to reportlab as `CJK`."""
    pdfmetrics.registerFont(TTFont(CJK, str(path), subfontIndex=0))


def check_glyphs(text: str) -> str:
    """Return `text`; raises `ValueError` for a character that the font lacks."""
    glyphs = pdfmetrics.getFont(CJK).face.charToGlyph
    lacking = sorted({char for char in text if ord(char) not in glyphs and not char.isspace()})
    if lacking:
        raise ValueError(f"the font lacks {lacking} in {text!r}")
    return text


def break_lines(text: str, size: float, width: float) -> list[str]:
    """Break Chinese text into lines of at most `width` points, punctuation and codes kept whole.

    reportlab's own CJK wrapping cuts fault codes and numbers in two.
    """
    check_glyphs(text)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for atom in _atoms(paragraph):
            if line and pdfmetrics.stringWidth(line + atom.rstrip(), CJK, size) > width:
                lines.append(line.rstrip())
                line = atom.lstrip()
            else:
                line += atom
        lines.append(line.rstrip())
    return lines


def _atoms(text: str) -> list[str]:
    atoms: list[str] = []
    for piece in _ATOM.findall(text):
        if atoms and (piece[0] in _NO_START or atoms[-1][-1] in _NO_END):
            atoms[-1] += piece
        else:
            atoms.append(piece)
    return atoms
