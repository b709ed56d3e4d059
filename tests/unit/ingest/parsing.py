"""Runs a parser on bytes and shows what came out, for tests."""

from __future__ import annotations

from pathlib import Path

from ingest.parse_child import build_parser
from kb.types import Block, BlockKind, Page, ParsedDocument


def ignore(done: int, total: int) -> None:
    """Take progress and do nothing."""


def parse(
    folder: Path,
    data: bytes,
    media_type: str,
    *,
    name: str = "sample",
    password: str | None = None,
    max_pages: int = 100,
    ocr: bool = False,
) -> ParsedDocument:
    """Return the parsed document."""
    path = folder / "sample"
    path.write_bytes(data)
    parser = build_parser(media_type, max_pages=max_pages, ocr=ocr)
    return parser.parse(path, name=name, password=password, progress=ignore)


def texts(page: Page, *kinds: BlockKind) -> list[str]:
    """Return the text of the page's blocks, of certain kinds if any are given."""
    return [cut(page, block) for block in page.blocks if not kinds or block.kind in kinds]


def outline(page: Page) -> list[tuple[str, str]]:
    """Return kind (headings with their level) and text of each block."""
    return [(f"{block.kind.value}{block.level or ''}", cut(page, block)) for block in page.blocks]


def records(page: Page) -> list[dict[str, str]]:
    """Return the table rows of the page."""
    return [dict(block.record) for block in page.blocks if block.record is not None]


def cut(page: Page, block: Block) -> str:
    """Return the text of one block."""
    return page.text[block.char_start : block.char_end]
