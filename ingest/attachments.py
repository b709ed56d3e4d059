"""AttachmentIntake: what came attached to a document, out of its file and into the store of files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import structlog

from kb.errors import DocumentError
from kb.ports import (
    Attachment,
    AttachmentLimits,
    AttachmentUse,
    Catalog,
    DocumentReader,
    FoundAttachments,
    LeaveReason,
    LeftOut,
    ReadRequest,
    SourceFiles,
)
from kb.types import Document, Problem

_log = structlog.get_logger(__name__)

_WORDS = {
    LeaveReason.TOO_MANY: "too many",
    LeaveReason.TOO_LARGE: "too large",
    LeaveReason.EMPTY: "empty",
    LeaveReason.UNREADABLE: "can't be taken out",
    LeaveReason.TOO_DEEP: "attached to attachments, too deep",
    LeaveReason.SMALL_PICTURE: "small picture in the text",
    LeaveReason.CALENDAR: "calendar entry",
    LeaveReason.SIGNATURE: "signature",
    LeaveReason.DELIVERY: "note about the delivery",
}
_SAVE_THEM = "Save them and add them by themselves."
_LISTED_NAMES = 20


class AttachmentIntake:
    """Stores attachments within limits; nothing is registered here.

    `limits` hold for all that an upload brings along, at all levels; `max_bytes` for each file.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        files: SourceFiles,
        reader: DocumentReader,
        limits: AttachmentLimits,
        max_depth: int,
    ) -> None:
        """`max_depth` 1 takes what is attached to uploads, 2 what is attached to that as well."""
        self._catalog = catalog
        self._files = files
        self._reader = reader
        self._limits = limits
        self._max_depth = max_depth

    def take(
        self, document: Document, *, password: str | None, is_cancelled: Callable[[], bool]
    ) -> tuple[list[Attachment], list[Problem]]:
        """Return what was stored, and warnings that name what was not.

        May run again: the same bytes are one file. Raises `JobCancelledError`.
        """
        use = self._catalog.measure_attachments(document.collection_id, document.id)
        is_too_deep = use.depth >= self._max_depth
        limits = AttachmentLimits(0, 0, 0) if is_too_deep else self._find_room(use)
        with tempfile.TemporaryDirectory(prefix="kb-attached-") as folder:
            try:
                request = ReadRequest(
                    self._files.get_path(document.sha256),
                    name=document.name,
                    password=password,
                    is_cancelled=is_cancelled,
                )
                found = self._reader.read_attachments(request, limits=limits, folder=Path(folder))
            except DocumentError as error:
                _log.warning("attachments_not_read", document_id=document.id, code=error.code)
                message = f"what is attached can't be taken out: {error.message}"
                return [], [Problem("attachments_not_read", message, _SAVE_THEM)]
            attachments = [self._store(name, path) for name, path in found.files]
        return attachments, list(_describe(found, is_too_deep=is_too_deep))

    def _find_room(self, use: AttachmentUse) -> AttachmentLimits:
        return AttachmentLimits(
            max_count=max(self._limits.max_count - use.count, 0),
            max_bytes=self._limits.max_bytes,
            max_total_bytes=max(self._limits.max_total_bytes - use.size_bytes, 0),
        )

    def _store(self, name: str, path: Path) -> Attachment:
        with path.open("rb") as stream:
            return Attachment(name, self._files.save(stream, max_bytes=self._limits.max_bytes))


def _describe(found: FoundAttachments, *, is_too_deep: bool) -> Iterable[Problem]:
    if found.left_out:
        left_out = [
            replace(item, reason=LeaveReason.TOO_DEEP)
            if is_too_deep and item.reason is LeaveReason.TOO_MANY
            else item
            for item in found.left_out
        ]
        yield Problem("attachments_not_read", f"not read: {_list(left_out)}", _SAVE_THEM)
    if found.skipped:
        yield Problem("attachments_skipped", f"not taken for documents: {_list(found.skipped)}")


def _list(items: Iterable[LeftOut]) -> str:
    """Return the names by reason, such as `a.zip, b.zip (too large)`."""
    by_reason: dict[LeaveReason, list[str]] = {}
    for item in items:
        by_reason.setdefault(item.reason, []).append(item.name)
    return "; ".join(
        f"{', '.join(names[:_LISTED_NAMES])}"
        + (f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else "")
        + f" ({_WORDS[reason]})"
        for reason, names in by_reason.items()
    )
