"""TmpfsPasswords: documents' passwords in memory that two processes can see, never on a disk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kb.errors import PasswordsUnavailableError

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_JOB_ID = re.compile(r"[\w-]{1,200}")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def find_file_system(path: Path) -> str:
    """Return the type of the file system that `path` lies on, such as tmpfs; empty if unknown."""
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8").splitlines()
    except OSError:
        return ""
    target = path.resolve()
    best, kind = -1, ""
    for fields in map(str.split, lines):
        mount = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        # the last of several mounts on one folder is the one that is seen
        if target.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), fields[2]
    return kind


class TmpfsPasswords:
    """One file of mode 600 per job, in a folder of mode 700 on a file system that lives in memory."""

    def __init__(self, root: Path, *, file_system: Callable[[Path], str] = find_file_system) -> None:
        """Create nothing yet; `file_system` returns the type of the file system of a path."""
        self._root = root
        self._file_system = file_system

    def keep(self, job_id: str, password: str) -> None:
        path = self._prepare() / _checked(job_id)
        partial = path.with_suffix(".part")
        try:
            partial.unlink(missing_ok=True)
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(password.encode("utf-8", "surrogatepass"))
            partial.replace(path)
        except OSError as error:
            raise PasswordsUnavailableError(
                f"the password cannot be kept in {str(self._root)!r}: {error.strerror}"
            ) from None

    def find(self, job_id: str) -> str | None:
        try:
            return (self._root / _checked(job_id)).read_bytes().decode("utf-8", "surrogatepass")
        except OSError:
            return None

    def forget(self, job_id: str) -> None:
        for suffix in ("", ".part"):
            with suppress(OSError):
                (self._root / f"{_checked(job_id)}{suffix}").unlink()

    def list_jobs(self) -> list[str]:
        try:
            return sorted({path.stem for path in self._root.iterdir()})
        except OSError:
            return []

    def _prepare(self) -> Path:
        """Return the folder, made if need be; raises unless it is ours alone and in memory."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._root.lstat()
        except OSError as error:
            raise PasswordsUnavailableError(
                f"the folder {str(self._root)!r} cannot be made: {error.strerror}"
            ) from None
        if self._root.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PasswordsUnavailableError(
                f"the folder {str(self._root)!r} is open to other users of this machine"
            )
        kind = self._file_system(self._root)
        if kind not in _IN_MEMORY:
            raise PasswordsUnavailableError(f"the folder {str(self._root)!r} is on {kind or 'a disk'}")
        return self._root


def _checked(job_id: str) -> str:
    if _JOB_ID.fullmatch(job_id) is None:
        raise ValueError(f"{job_id!r} is not the id of a job")
    return job_id
