"""WatchedFolder: which files of a folder were added, changed or deleted since the last look.

It looks instead of listening: network shares, where manuals tend to lie, send no events.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from kb.filenames import SEPARATOR, clean_filename

_HIDDEN_STARTS = (".", "~$")
_UNFINISHED_ENDS = (".tmp", ".part", ".partial", ".crdownload")

Signature = tuple[int, int]
"""Size in bytes and time of the last change in ns: if it is the same, the bytes are taken to be the same."""


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file that was sent: what it was and which document it became.

    `job_id` is set until its job is known to have ended, `replaces` until the document that it takes
    the place of may go. A file that was refused has no document.
    """

    signature: Signature
    sha256: str = ""
    document_id: str = ""
    job_id: str = ""
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class FolderChanges:
    """Paths relative to the folder, sorted. `is_gone` means that the folder looks lost, not emptied."""

    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    is_gone: bool = False


class WatchedFolder:
    """Compares a folder with what is remembered of it; one thread at a time.

    What was sent is remembered in the file `memory`, so that a later run knows which documents are
    its own and which files have gone in the meantime.
    """

    def __init__(self, root: Path, *, memory: Path) -> None:
        self._root = root
        self._memory = memory
        self._seen: dict[str, Signature] | None = None
        self._files, self._place = _read(memory)
        self._names: dict[str, str] = {}
        self._is_saved = True

    @property
    def files(self) -> Mapping[str, WatchedFile]:
        """What was sent, by relative path."""
        return self._files

    def look(self) -> FolderChanges:
        """Return what is to be done; a file counts once it looked the same at two looks.

        So one that is still being written waits, and so does one that is being replaced. When the
        folder can't be read, or is empty and not the one it was, nothing is deleted: a share that is
        not mounted looks like that.
        """
        before = self._seen
        try:
            found, place = scan(self._root), find_place(self._root)
        except OSError:
            self._seen = None
            return FolderChanges(is_gone=True)
        if not found and self._files and place != self._place:
            self._seen = None
            return FolderChanges(is_gone=True)
        if found.keys() != (before or {}).keys():
            self._names = name_documents(found)
        self._seen, self._place = found, place
        if before is None:
            return FolderChanges()
        changed = (
            path
            for path, signature in found.items()
            if before.get(path) == signature
            and (path not in self._files or self._files[path].signature != signature)
        )
        deleted = (path for path in self._files if path not in found and path not in before)
        return FolderChanges(tuple(sorted(changed)), tuple(sorted(deleted)))

    def get_signature(self, path: str) -> Signature:
        """Return the signature of the last look."""
        assert self._seen is not None
        return self._seen[path]

    def name(self, path: str) -> str:
        """Return the name of the document of a file: its place in the folder."""
        return self._names[path]

    def remember(self, path: str, file: WatchedFile) -> None:
        """Note what a file has become."""
        self._files[path] = file
        self._is_saved = False

    def forget(self, path: str) -> None:
        """Note that a file and its document are gone."""
        self._files.pop(path, None)
        self._is_saved = False

    def is_needed(self, document_id: str) -> bool:
        """Return whether a remembered file is this document; two files of the same bytes are one."""
        return any(file.document_id == document_id for file in self._files.values())

    def save(self) -> None:
        """Write the memory if it has changed. If it is lost, what was sent turns out to be there already."""
        if self._is_saved:
            return
        self._memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._memory.with_suffix(".part")
        files = {path: asdict(file) for path, file in sorted(self._files.items())}
        memory = {"root": str(self._root), "place": self._place, "files": files}
        text = json.dumps(memory, ensure_ascii=False, indent=1)
        partial.write_text(text, "utf-8", "surrogateescape")
        partial.replace(self._memory)
        self._is_saved = True


def scan(root: Path) -> dict[str, Signature]:
    """Return the visible, finished files below `root`, by relative path with slashes; raises OSError.

    A file or sub-folder that vanishes or can't be read meanwhile is an error, too: taking it for
    deleted would be wrong.
    """
    found: dict[str, Signature] = {}
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(_HIDDEN_STARTS) or entry.name.lower().endswith(_UNFINISHED_ENDS):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file():
                    status = entry.stat()
                    relative = Path(entry.path).relative_to(root).as_posix()
                    found[relative] = (status.st_size, status.st_mtime_ns)
    return found


def find_place(root: Path) -> list[int]:
    """Return what tells a folder from the empty one that shows when a share is not mounted."""
    status = root.stat()
    return [status.st_dev, status.st_ino]


def name_documents(paths: Iterable[str]) -> dict[str, str]:
    """Return a document name per relative path: its parts with `SEPARATOR` between them.

    Names that are too long, or that two files would share once they are cleaned, get a mark made
    from the path, so that no file takes the place of another.
    """
    plain = {path: SEPARATOR.join(PurePosixPath(path).parts) for path in paths}
    cleaned = {path: clean_filename(name) for path, name in plain.items()}
    counts = Counter(cleaned.values())
    return {
        path: _mark(path) if counts[name] > 1 or (name != plain[path] and "…" in name) else name
        for path, name in cleaned.items()
    }


def _mark(path: str) -> str:
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return clean_filename(f"{digest} {PurePosixPath(path).name}")


def find_memory(root: Path, *, url: str, collection: str) -> Path:
    """Return where the watch of a folder into a collection keeps its memory, in the user's state folder."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    key = hashlib.sha256("\0".join((str(root.resolve()), url, collection)).encode("utf-8", "surrogateescape"))
    return Path(base) / "kb" / "watch" / f"{key.hexdigest()[:16]}.json"


def _read(memory: Path) -> tuple[dict[str, WatchedFile], list[int]]:
    """Return files and place; a broken memory is an empty one: nothing is deleted because of it."""
    try:
        stored = json.loads(memory.read_text("utf-8", "surrogateescape"))
        files = {
            path: WatchedFile(**{**file, "signature": tuple(file["signature"])})
            for path, file in stored["files"].items()
        }
        return files, [int(number) for number in stored["place"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, []
