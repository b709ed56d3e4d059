"""Mail messages by the standard library: subject, people, date and the body a reader sees."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage
from pathlib import Path

from ingest.encoding import decode
from ingest.formats import EMAIL
from ingest.mail_parts import find_texts, iter_attached
from ingest.pages import PageBuilder
from ingest.parsers.html import declared_charset, make_soup
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
        subject = str(message.get("Subject") or "").strip()
        builder = PageBuilder(1)
        builder.add_text(BlockKind.HEADING, subject, level=1)
        body = "\n\n".join(_read_text_part(part) for part in find_texts(message))
        attached = list(iter_attached(message))
        if not subject and not body.strip() and not attached:
            raise NoTextFoundError(f"{name!r} has neither subject nor body")
        for header in _SHOWN_HEADERS:
            value = str(message.get(header) or "").strip()
            if value:
                builder.add_text(BlockKind.PARAGRAPH, f"{header}: {value}")
        named = [part.name for part in attached if not part.find_reason_to_skip()][:_SHOWN_NAMES]
        if named:
            builder.add_text(BlockKind.PARAGRAPH, f"Attachments: {', '.join(named)}")
        inner = read_text(body)
        for block in inner.blocks:
            builder.add_text(block.kind, inner.text[block.char_start : block.char_end], level=block.level)
        progress(1, 1)
        return ParsedDocument(
            pages=(builder.build(),),
            media_type=EMAIL,
            title=subject or None,
            attachment_count=len(attached),
        )


def _read_text_part(part: EmailMessage) -> str:
    """Return plain text as it is, of HTML its text."""
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    text, _ = decode(data, declared=part.get_content_charset() or declared_charset(data))
    if part.get_content_type() == "text/html":
        return make_soup(text).get_text("\n")
    return text
