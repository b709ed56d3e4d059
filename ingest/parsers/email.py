"""Mail messages by the standard library: subject, people, date and the body a reader sees."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage
from pathlib import Path

from ingest.encoding import decode
from ingest.formats import EMAIL
from ingest.mail_parts import find_texts, iter_attached, read_header
from ingest.pages import PageBuilder
from ingest.parsers.html import declared_charset, write_html
from ingest.parsers.text import read_text
from kb.errors import NoTextFoundError
from kb.ports import PageProgress
from kb.types import BlockKind, ParsedDocument

_SHOWN_HEADERS = ("From", "To", "Cc", "Date")
_SHOWN_NAMES = 50


class EmailParser:
    """Reads an EML file; the message is one page, which names what is attached."""

    def parse(self, path: Path, *, name: str, password: str | None, progress: PageProgress) -> ParsedDocument:
        """Raises `NoTextFoundError` when subject and body are empty and nothing is attached."""
        del password
        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        subject = read_header(message, "Subject").strip()
        builder = PageBuilder(1)
        builder.add_text(BlockKind.HEADING, subject, level=1)
        attached = list(iter_attached(message))
        for header in _SHOWN_HEADERS:
            value = read_header(message, header).strip()
            if value:
                builder.add_text(BlockKind.PARAGRAPH, f"{header}: {value}")
        named = [part.name for part in attached if not part.find_reason_to_skip()][:_SHOWN_NAMES]
        if named:
            builder.add_text(BlockKind.PARAGRAPH, f"Attachments: {', '.join(named)}")
        size = len(builder.build().text)
        table_index = 0
        for part in find_texts(message):
            table_index = _write_part(builder, part, table_index)
        page = builder.build()
        if not subject and len(page.text) == size and not attached:
            raise NoTextFoundError(f"{name!r} has neither subject nor body")
        progress(1, 1)
        return ParsedDocument(
            pages=(page,),
            media_type=EMAIL,
            title=subject or None,
            attachment_count=len(attached),
        )


def _write_part(builder: PageBuilder, part: EmailMessage, table_index: int) -> int:
    """Write plain text as it is, HTML with its headings, lists and tables; return the next table's index."""
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    text, _ = decode(data, declared=part.get_content_charset() or declared_charset(data))
    if part.get_content_type() == "text/html":
        return write_html(builder, text, table_index=table_index)
    inner = read_text(text)
    for block in inner.blocks:
        builder.add_text(block.kind, inner.text[block.char_start : block.char_end], level=block.level)
    return table_index
