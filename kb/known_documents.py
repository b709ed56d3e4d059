"""KnownDocuments: what a collection holds already, so that unchanged files need not be sent again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from kb.filenames import clean_filename
from kb.schemas import DocumentOut
from kb.types import DocumentState

_TO_TRY_AGAIN = (DocumentState.FAILED, DocumentState.CANCELLED)


class KnownDocuments:
    """The documents of a collection by the hash of their bytes, failed and cancelled ones left out.

    So is what is only there as an attachment: it would go with the document that has it.
    """

    def __init__(self, documents: Iterable[DocumentOut]) -> None:
        self._by_hash: dict[str, list[DocumentOut]] = {}
        for document in documents:
            if document.state not in _TO_TRY_AGAIN and document.parent_id is None:
                self._by_hash.setdefault(document.sha256, []).append(document)

    def find(self, files: Mapping[str, Path]) -> dict[str, DocumentOut]:
        """Return what needs not be sent, of files by their names: the documents that hold them already.

        A file that is there under another name needs not be sent if the file of that name is the same;
        else it has a new name, which the service learns when it is sent. What can't be read is left out.
        """
        if not self._by_hash:
            return {}
        hashes: dict[str, str] = {}
        for name, path in files.items():
            with contextlib.suppress(OSError):
                hashes[name] = hash_file(path)
        here = {(clean_filename(name), sha256) for name, sha256 in hashes.items()}
        found: dict[str, DocumentOut] = {}
        for name, sha256 in hashes.items():
            held = {item.name: item for item in self._by_hash.get(sha256, ()) if (item.name, sha256) in here}
            document = held.get(clean_filename(name)) or next(iter(held.values()), None)
            if document is not None:
                found[name] = document
        return found


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
