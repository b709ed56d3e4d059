"""What formats with pages have in common: pages are read one by one, and laid out once, all together."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from ingest.lines import PageContent
from kb.ports import PageProgress
from kb.types import ParsedDocument, TextSource

_PAGES_PER_COLLECTION = 50


class PageSource(Protocol):
    """An open file whose pages can be read in any order, and some of them not at all."""

    @property
    def page_count(self) -> int:
        """How many pages there are; at least one."""
        ...

    def read_page(self, page_number: int) -> PageContent:
        """Return what stands on one page, from 1; depends on no other page."""
        ...

    def assemble(self, contents: Sequence[PageContent]) -> ParsedDocument:
        """Return the document from the contents of all its pages, in order.

        Raises a `DocumentError` when nothing usable is on them.
        """
        ...


@runtime_checkable
class PagedParser(Protocol):
    """A parser that can read its pages apart, in ranges and in several processes."""

    def open(self, path: Path, *, name: str, password: str | None) -> AbstractContextManager[PageSource]:
        """Open the file; raises a `DocumentError` when it can't be, or has too many pages."""
        ...


def parse_paged(
    parser: PagedParser, path: Path, *, name: str, password: str | None, progress: PageProgress
) -> ParsedDocument:
    """Read all pages in this process and return the document; raises like the parser."""
    with parser.open(path, name=name, password=password) as source:
        contents: list[PageContent] = []
        for number in range(1, source.page_count + 1):
            contents.append(source.read_page(number))
            progress(number, source.page_count)
            if number % _PAGES_PER_COLLECTION == 0:
                gc.collect()
        return source.assemble(contents)


def damaged_page(page_number: int, reason: str) -> PageContent:
    """Return the empty content of a page that can't be read."""
    warning = f"page_damaged: page {page_number} cannot be read ({reason})"
    return PageContent(page_number, 0.0, 0.0, (), source=TextSource.NONE, warnings=(warning,))
