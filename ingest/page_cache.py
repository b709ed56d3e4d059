"""PageCache: what was read of files, on disk by content, so that nothing is read twice after a stop."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = ("pypdfium2", "pypdf", "liteparse", "rapidocr", "onnxruntime", "pillow")
_MAX_AGE_S = 30 * 86400.0
_LOCK = "lock"


class PageCache:
    """Folders `<root>/<sha256>/<what read it>`; several processes may use one root."""

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        """`max_bytes` bounds what is kept of documents that nobody reads just now."""
        self._root = root
        self._max_bytes = max_bytes

    @contextlib.contextmanager
    def open(self, path: Path, *, variant: str) -> Iterator[Path | None]:
        """Yield a folder for what is read of a file's content, None while another process holds it.

        `variant` names all that changes what is read, besides the file and the program.
        """
        key = hashlib.sha256(f"{code_version()} {variant}".encode()).hexdigest()[:16]
        folder = self._root / hash_file(path) / key
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder) as is_ours:
            if is_ours:
                os.utime(folder)
                yield folder
            else:
                yield None

    def prune(self, *, now_s: float | None = None) -> None:
        """Remove what is old, then the least recently used, until `max_bytes` hold the rest."""
        oldest_s = (time.time() if now_s is None else now_s) - _MAX_AGE_S
        folders = sorted((folder for folder in self._root.glob("*/*") if folder.is_dir()), key=_used_s)
        sizes = {folder: _size_bytes(folder) for folder in folders}
        total = sum(sizes.values())
        for folder in folders:
            if total <= self._max_bytes and _used_s(folder) >= oldest_s:
                continue
            with _locked(folder) as is_ours:
                if is_ours:
                    shutil.rmtree(folder, ignore_errors=True)
                    total -= sizes[folder]
            with contextlib.suppress(OSError):
                folder.parent.rmdir()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the file's bytes in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_version() -> str:
    """Return a name of the code that reads files, which changes with any change to it."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for source in sorted(root.rglob("*.py")):
        digest.update(source.relative_to(root).as_posix().encode())
        digest.update(source.read_bytes())
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}".encode())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Yield whether this process alone has the folder; the lock ends with the process."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _used_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_bytes(folder: Path) -> int:
    sizes = 0
    for file in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            sizes += file.stat().st_size
    return sizes
