"""The parts of a mail message: which are its text, which came attached."""

from __future__ import annotations

import base64
import binascii
import email.policy
import io
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage, Message
from pathlib import PurePath

from PIL import Image

from ingest.encoding import decode
from kb.filenames import clean_filename
from kb.ports import LeaveReason

MAIL_TYPES = frozenset({"message/rfc822", "message/global"})
_MAIL_SUFFIX = ".eml"
_CALENDAR_TYPES = frozenset({"text/calendar", "application/ics"})
_SIGNATURE_TYPES = frozenset(
    {
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
        "application/pgp-signature",
        "application/pgp-keys",
        "application/pgp-encrypted",
    }
)
_BODY_TYPES = frozenset({"text/plain", "text/html"})
# A picture in the text with fewer pixels is a logo, an icon or a line, not a screen or a drawing.
_SMALL_PIXELS = 200 * 200
_SMALL_SIDE = 48
_PICTURE_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
# An attached message is stored as it came, as far as the parser has kept it.
_UNCHANGED = email.policy.default.clone(refold_source="none", cte_type="8bit")


@dataclass(frozen=True, slots=True)
class AttachedPart:
    """A part that came attached, with a clean name."""

    part: EmailMessage
    name: str

    def read(self) -> bytes:
        """Return the decoded bytes, empty when there are none."""
        if self.part.get_content_type() in MAIL_TYPES:
            return _read_message(self.part)
        payload = self.part.get_payload(decode=True)
        return payload if isinstance(payload, bytes) else b""

    def find_reason_to_skip(self) -> LeaveReason | None:
        """Return why this is nothing to be read by itself, None if it may be."""
        media_type = self.part.get_content_type()
        if media_type in _CALENDAR_TYPES:
            return LeaveReason.CALENDAR
        if media_type in _SIGNATURE_TYPES:
            return LeaveReason.SIGNATURE
        if media_type == "text/rfc822-headers":
            return LeaveReason.DELIVERY
        if self.part.get_content_maintype() == "message" and media_type not in MAIL_TYPES:
            return LeaveReason.DELIVERY
        if _is_in_text(self.part) and _is_small_picture(self.read()):
            return LeaveReason.SMALL_PICTURE
        return None


def find_texts(message: EmailMessage) -> list[EmailMessage]:
    """Return the body that a reader sees, plain rather than HTML, and the texts that stand beside it."""
    body = message.get_body(preferencelist=("plain", "html"))
    beside = (
        part
        for part, is_variant in _iter_leaves(message)
        if not is_variant and _is_text(part) and part is not body
    )
    return [*([body] if isinstance(body, EmailMessage) else []), *beside]


def iter_attached(message: EmailMessage) -> Iterator[AttachedPart]:
    """Yield what came attached, in order; what an attached message has attached is its own."""
    body = message.get_body(preferencelist=("plain", "html"))
    for part, is_variant in _iter_leaves(message):
        is_body = part is body or _is_text(part)
        is_other_variant = is_variant and part.get_content_maintype() == "text" and not _find_filename(part)
        if is_body or (is_other_variant and part.get_content_type() not in _CALENDAR_TYPES):
            continue
        yield AttachedPart(part, _name(part))


def _iter_leaves(part: Message, *, is_variant: bool = False) -> Iterator[tuple[EmailMessage, bool]]:
    """Yield the parts that hold something, and whether they are one of several forms of the same."""
    if part.get_content_maintype() != "multipart":
        assert isinstance(part, EmailMessage)
        yield part, is_variant
        return
    payload = part.get_payload()
    for inner in payload if isinstance(payload, list) else []:
        if isinstance(inner, Message):
            is_form = is_variant or part.get_content_subtype() == "alternative"
            yield from _iter_leaves(inner, is_variant=is_form)


def _is_text(part: EmailMessage) -> bool:
    return part.get_content_type() in _BODY_TYPES and not part.is_attachment() and not _find_filename(part)


def _is_in_text(part: EmailMessage) -> bool:
    """Return whether the part is a picture that may stand in the text: some mailers call all attachments."""
    is_named_in_text = part.get_content_disposition() == "inline" or part.get("Content-ID") is not None
    return part.get_content_maintype() == "image" and is_named_in_text


def _is_small_picture(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data), formats=_PICTURE_FORMATS) as picture:
            width, height = picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False
    return width * height <= _SMALL_PIXELS or min(width, height) <= _SMALL_SIDE


def _read_message(part: EmailMessage) -> bytes:
    payload = part.get_payload()
    inner = payload[0] if isinstance(payload, list) and payload else None
    if not isinstance(inner, Message):
        return b""
    if str(part.get("Content-Transfer-Encoding") or "").strip().lower() == "base64":
        # Not allowed for messages, and done all the same: what was parsed is the encoded text.
        try:
            return base64.b64decode(str(inner.get_payload()), validate=False)
        except (binascii.Error, ValueError):
            return b""
    return inner.as_bytes(policy=_UNCHANGED)


def _name(part: EmailMessage) -> str:
    media_type = part.get_content_type()
    found = _find_filename(part)
    if media_type in MAIL_TYPES:
        name = clean_filename(found or _find_subject(part) or "message")
        is_mail = PurePath(name).suffix.lower() == _MAIL_SUFFIX
        return name if is_mail else clean_filename(name + _MAIL_SUFFIX)
    name = clean_filename(found or ("picture" if media_type.startswith("image/") else "attachment"))
    if PurePath(name).suffix or media_type == "text/plain":
        return name
    return clean_filename(name + (mimetypes.guess_extension(media_type) or ""))


def _find_subject(part: EmailMessage) -> str:
    payload = part.get_payload()
    inner = payload[0] if isinstance(payload, list) and payload else None
    return read_header(inner, "Subject") if isinstance(inner, Message) else ""


def _find_filename(part: EmailMessage) -> str:
    try:
        return part.get_filename() or ""
    except Exception:  # the library's header parser raises whatever a broken header makes it raise
        return ""


def read_header(message: Message, name: str) -> str:
    """Return a header as a reader sees it, empty if it is absent or broken.

    Some programs write headers in bytes of their own encoding, which no standard allows.
    """
    for raw_name, raw in message.raw_items():
        if raw_name.lower() == name.lower():
            raw_bytes = str(raw).encode("utf-8", "surrogateescape")
            if not raw_bytes.isascii():
                return " ".join(decode(raw_bytes)[0].split())
            break
    try:
        return str(message.get(name) or "")
    except Exception:  # see above
        return ""
