"""Takes the files out of a mail or a PDF; runs in the disposable process, see `ingest.parse_child`.

What is taken out is written to numbered files: no name of a user becomes a path.
"""

from __future__ import annotations

import email
import email.policy
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

import pypdfium2

from ingest.formats import EMAIL, PDF
from ingest.mail_parts import iter_attached
from ingest.pdf_annotations import iter_pinned_files
from kb.filenames import clean_filename
from kb.ports import AttachmentLimits, LeaveReason

_MAX_LOOKED_AT = 5000


@dataclass(frozen=True, slots=True)
class _Found:
    """A file inside another one; reading it may raise whatever a library raises."""

    name: str
    read: Callable[[], bytes]
    find_reason_to_skip: Callable[[], LeaveReason | None] = lambda: None


def extract(
    path: Path,
    media_type: str,
    *,
    password: str | None,
    limits: AttachmentLimits,
    folder: Path,
    unreadable: Collection[int] = (),
    begin: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Write what is attached to files `0`, `1`… in `folder`, in order.

    `begin` is called with the number of each attachment, from 1, before it is touched; those in
    `unreadable` have ended a process before and are left out.

    Returns `{"taken": [name…], "left_out": [[name, reason]…], "skipped": [[name, reason]…]}`; the
    first name belongs to the file `0`. The names are clean and differ from each other.
    """
    taken: list[str] = []
    left_out: list[tuple[str, LeaveReason]] = []
    skipped: list[tuple[str, LeaveReason]] = []
    names: set[str] = set()
    room_bytes = limits.max_total_bytes
    attached = islice(_iter_found(path, media_type, password), _MAX_LOOKED_AT)
    for number, found in enumerate(attached, start=1):
        name = _make_unique(found.name, names)
        if number in unreadable:
            left_out.append((name, LeaveReason.UNREADABLE))
            continue
        begin(number)
        try:
            reason = found.find_reason_to_skip()
            if reason is not None:
                skipped.append((name, reason))
                continue
            if len(taken) >= limits.max_count:
                left_out.append((name, LeaveReason.TOO_MANY))
                continue
            data = found.read()
        except Exception:
            left_out.append((name, LeaveReason.UNREADABLE))
            continue
        if not data:
            left_out.append((name, LeaveReason.EMPTY))
        elif len(data) > min(limits.max_bytes, room_bytes):
            left_out.append((name, LeaveReason.TOO_LARGE))
        else:
            (folder / str(len(taken))).write_bytes(data)
            room_bytes -= len(data)
            taken.append(name)
    return {"taken": taken, "left_out": left_out, "skipped": skipped}


def _iter_found(path: Path, media_type: str, password: str | None) -> Iterator[_Found]:
    if media_type == EMAIL:
        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        for part in iter_attached(message):
            yield _Found(part.name, part.read, part.find_reason_to_skip)
    elif media_type == PDF:
        document = pypdfium2.PdfDocument(path, password=password)
        try:
            own = range(max(document.count_attachments(), 0))
            for number, get in enumerate((partial(document.get_attachment, index) for index in own), start=1):
                yield _find_in_pdf(get, number)
            for number, pinned in enumerate(iter_pinned_files(document), start=len(own) + 1):
                yield _find_in_pdf(lambda: pinned, number)  # noqa: B023 - read before the next
        finally:
            document.close()


def _find_in_pdf(get_attachment: Callable[[], Any], number: int) -> _Found:
    def read() -> bytes:
        return bytes(get_attachment().get_data())

    try:
        name = clean_filename(get_attachment().get_name())
    except (pypdfium2.PdfiumError, UnicodeDecodeError):
        name = f"file {number}"
    return _Found(name, read)


def _make_unique(name: str, names: set[str]) -> str:
    """Return the name, or with a number before its extension if it is taken; notes what it returns."""
    suffix = PurePath(name).suffix
    stem, number, unique = name.removesuffix(suffix), 1, name
    while unique.casefold() in names:
        number += 1
        unique = clean_filename(f"{stem} ({number}){suffix}")
    names.add(unique.casefold())
    return unique
