"""ParsedDocument to JSON and back, for the way from the parser's process to its caller."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kb.types import Block, BlockKind, Box, Line, Page, PageQuality, ParsedDocument, TextSource


def to_json(parsed: ParsedDocument) -> dict[str, Any]:
    """Return plain dictionaries, lists, strings and numbers."""
    return asdict(parsed)


def from_json(raw: dict[str, Any]) -> ParsedDocument:
    """Return the document that `to_json` was given."""
    return ParsedDocument(
        pages=tuple(_page(page) for page in raw["pages"]),
        media_type=raw["media_type"],
        title=raw["title"],
        metadata=dict(raw["metadata"]),
        warnings=tuple(raw["warnings"]),
        attachment_count=raw["attachment_count"],
    )


def _page(raw: dict[str, Any]) -> Page:
    quality = dict(raw["quality"])
    quality["warnings"] = tuple(quality["warnings"])
    return Page(
        page_number=raw["page_number"],
        text=raw["text"],
        source=TextSource(raw["source"]),
        label=raw["label"],
        width=raw["width"],
        height=raw["height"],
        blocks=tuple(_block(block) for block in raw["blocks"]),
        lines=tuple(Line(line["char_start"], line["char_end"], _box(line["box"])) for line in raw["lines"]),
        quality=PageQuality(**quality),
    )


def _block(raw: dict[str, Any]) -> Block:
    return Block(**{**raw, "kind": BlockKind(raw["kind"]), "box": _box(raw["box"])})


def _box(raw: dict[str, float] | None) -> Box | None:
    return None if raw is None else Box(**raw)
