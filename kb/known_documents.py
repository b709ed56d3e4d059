"""KnownDocuments: what a collection holds already, so that unchanged files need not be sent again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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

    def find(self, path: Path, *, name: str) -> DocumentOut | None:
        """Return the document that holds the file's bytes, one of this name if there is one.

        Raises OSError when the file can't be read.
        """
        found = self._by_hash.get(hash_file(path), []) if self._by_hash else []
        same_name = (document for document in found if document.name == clean_filename(name))
        return next(same_name, found[0] if found else None)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
