"""PageStore: what was read of one document so far, in a folder; each page is safe once it is written."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ingest.content_json import content_from_json, content_to_json
from ingest.lines import PageContent
from ingest.parsed_json import from_json
from kb.types import ParsedDocument

_PAGES = "pages"
_DAMAGED = "damaged.json"
_PARSED = "parsed.json.z"


class PageStore:
    """One line a page, appended; a line that a dying process left half-written does not count.

    Written by one process at a time. What cannot be read counts as absent, so that the worst that a
    damaged store does is that pages are read again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # -- pages
    def add_page(self, content: PageContent) -> None:
        """Write a page to disk."""
        raw = json.dumps(content_to_json(content)).encode("utf-8", "surrogatepass")
        text_bytes = count_text_bytes(content)
        packed = base64.b64encode(zlib.compress(raw, 1))
        line = b"%d %d %d %s\n" % (content.page_number, text_bytes, zlib.crc32(packed), packed)
        with (self._folder / _PAGES).open("ab") as file:
            file.write(line)

    def list_pages(self) -> dict[int, int]:
        """Return the numbers of the pages stored, with the bytes of text of each."""
        return {number: text_bytes for number, text_bytes, _ in self._iter_lines()}

    def load_pages(self) -> dict[int, PageContent]:
        """Return all pages stored, by number."""
        return {number: _decode(packed) for number, _, packed in self._iter_lines()}

    def clear(self) -> None:
        """Forget everything."""
        for name in (_PAGES, _DAMAGED, _PARSED):
            (self._folder / name).unlink(missing_ok=True)

    def drop_torn_line(self) -> None:
        """Cut off a last line that was not written to its end."""
        path = self._folder / _PAGES
        if not path.is_file():
            return
        with path.open("r+b") as file:
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)

    # -- pages that end their process
    def load_damaged(self) -> dict[int, str]:
        """Return the pages that shall not be tried again, with the code of the error that each one is."""
        raw = _read_json(self._folder / _DAMAGED)
        return {int(number): str(code) for number, code in raw.items()} if isinstance(raw, dict) else {}

    def save_damaged(self, damaged: dict[int, str]) -> None:
        """Replace what `load_damaged` returns."""
        (self._folder / _DAMAGED).write_text(json.dumps(damaged), encoding="utf-8")

    # -- the whole document
    def find_parsed(self) -> ParsedDocument | None:
        """Return the document if it was laid out before."""
        try:
            raw = json.loads(zlib.decompress((self._folder / _PARSED).read_bytes()))
            return from_json(raw)
        except (OSError, ValueError, zlib.error, KeyError, TypeError):
            return None

    def save_parsed(self, raw: dict[str, Any]) -> None:
        """Keep the document in the form of `ingest.parsed_json`; it appears whole or not at all."""
        target = self._folder / _PARSED
        partial = target.with_suffix(".part")
        partial.write_bytes(zlib.compress(json.dumps(raw).encode(), 1))
        partial.replace(target)

    def _iter_lines(self) -> Iterator[tuple[int, int, bytes]]:
        try:
            file = (self._folder / _PAGES).open("rb")
        except FileNotFoundError:
            return
        with file:
            for line in file:
                parts = line.removesuffix(b"\n").split(b" ")
                if len(parts) != 4 or not all(part.isdigit() for part in parts[:3]):
                    continue
                number, text_bytes, checksum = map(int, parts[:3])
                if zlib.crc32(parts[3]) == checksum:
                    yield number, text_bytes, parts[3]


def count_text_bytes(content: PageContent) -> int:
    """Return the size of a page's text in UTF-8."""
    cells = (cell for table in content.tables for row in table.grid.shown for cell in row)
    texts = (*(line.text for line in content.lines), *cells)
    return sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts)


def _decode(packed: bytes) -> PageContent:
    return content_from_json(json.loads(zlib.decompress(base64.b64decode(packed))))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
