"""SHA-256 of model files, remembered as long as size and time of change stay the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

ByteProgress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

_PIECE_BYTES = 1 << 20


def hash_file(path: Path, *, progress: ByteProgress | None = None) -> str:
    """Return the SHA-256 of a file in lower-case hexadecimal."""
    digest = hashlib.sha256()
    total = path.stat().st_size
    done = 0
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
            done += len(piece)
            if progress:
                progress(done, total)
    return digest.hexdigest()


def fingerprint_file(path: Path) -> str:
    """Return what tells two big files apart without reading them whole: their size and both ends, hashed.

    The file is read again only after its size or time of change differs.
    """
    state = path.stat()
    return _fingerprint(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=8)
def _fingerprint(path: Path, size_bytes: int, _mtime_ns: int) -> str:
    digest = hashlib.sha256(str(size_bytes).encode())
    with path.open("rb") as stream:
        digest.update(stream.read(_PIECE_BYTES))
        stream.seek(max(0, size_bytes - _PIECE_BYTES))
        digest.update(stream.read(_PIECE_BYTES))
    return f"{path.name}:{size_bytes}:{digest.hexdigest()[:16]}"


def hash_folder(folder: Path, names: Sequence[str], *, cache_name: str) -> dict[str, str]:
    """Return the SHA-256 of each named file, from the file `cache_name` in the folder where it holds.

    An entry holds while size and modification time are the same. A folder that can't be written
    is no error: the files are then hashed at each call.
    """
    cache = folder / cache_name
    known = read_json_object(cache)
    entries = {}
    for name in names:
        state = (folder / name).stat()
        entry = known.get(name)
        if not (
            isinstance(entry, dict)
            and isinstance(entry.get("sha256"), str)
            and (entry.get("size_bytes"), entry.get("mtime_ns")) == (state.st_size, state.st_mtime_ns)
        ):
            entry = {
                "sha256": hash_file(folder / name),
                "size_bytes": state.st_size,
                "mtime_ns": state.st_mtime_ns,
            }
        entries[name] = entry
    if entries != known:
        with contextlib.suppress(OSError):
            write_json(cache, entries)
    return {name: str(entry["sha256"]) for name, entry in entries.items()}


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in `path`, an empty one if it is absent or damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: object) -> None:
    """Write `content` so that a reader sees the old file or the new one, never half."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
