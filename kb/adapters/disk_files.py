"""Uploaded bytes in a folder, each file named by its SHA-256."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kb.errors import BackendError, DamagedFileError, UploadTooLargeError
from kb.ports import StoredFile

_PIECE_BYTES = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


class DiskFiles:
    """Source files under `root`, as `<first two digits>/<sha256>`; the folder is made when needed.

    `derived` holds folders named by SHA-256, of what others made of the bytes: they go with the bytes.
    """

    def __init__(self, root: Path, *, derived: Path | None = None) -> None:
        self._root = root
        self._derived = derived

    def save(self, stream: BinaryIO, *, max_bytes: int) -> StoredFile:
        try:
            return self._save(stream, max_bytes=max_bytes)
        except OSError as error:
            raise BackendError(
                f"the upload cannot be stored in {str(self._root)!r}: {error.strerror or error}",
                next_step="Check the data folder's free space and permissions.",
            ) from error

    def get_path(self, sha256: str) -> Path:
        path = self._place(sha256)
        if not path.is_file():
            raise DamagedFileError(
                f"the bytes of {sha256!r} are gone", next_step="Upload the document again."
            )
        return path

    def delete(self, sha256: str) -> None:
        self._place(sha256).unlink(missing_ok=True)
        if self._derived is not None:
            shutil.rmtree(self._derived / sha256, ignore_errors=True)

    @contextmanager
    def guard(self) -> Iterator[None]:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            lock = (self._root / "lock").open("w")
        except OSError as error:
            raise BackendError(
                f"{str(self._root)!r} cannot be written: {error.strerror or error}",
                next_step="Check the data folder's free space and permissions.",
            ) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _save(self, stream: BinaryIO, *, max_bytes: int) -> StoredFile:
        incoming = self._root / "incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=incoming)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                stored = _copy(stream, file, max_bytes=max_bytes)
                file.flush()
                os.fsync(file.fileno())
            target = self._place(stored.sha256)
            if not target.parent.is_dir():
                target.parent.mkdir(exist_ok=True)
                _flush_folder(self._root)
            # Also over bytes that are there already: whatever became of the old copy, this one is whole.
            temporary.replace(target)
            _flush_folder(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return stored

    def _place(self, sha256: str) -> Path:
        # What goes into a path is checked here, whoever calls.
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is not a SHA-256 in hexadecimal digits")
        return self._root / sha256[:2] / sha256


def _copy(stream: BinaryIO, file: BinaryIO, *, max_bytes: int) -> StoredFile:
    digest = hashlib.sha256()
    size_bytes = 0
    while piece := stream.read(_PIECE_BYTES):
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            raise UploadTooLargeError("the upload", limit_bytes=max_bytes)
        digest.update(piece)
        file.write(piece)
    return StoredFile(sha256=digest.hexdigest(), size_bytes=size_bytes)


def _flush_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
