"""SHA-256 of every file of a folder, in the format of `sha256sum`."""

from __future__ import annotations

import re
from pathlib import Path

from kb.errors import CallerError
from kb.model_files import hash_file
from kb.runtime.checkpoint import iter_files
from kb.runtime.checks import FAIL, OK, Check

_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def write_manifest(folder: Path, target: Path) -> None:
    """Write one line a file, `<sha256>  <path>`; `sha256sum -c` reads it too."""
    lines = [
        f"{hash_file(path)}  {path.relative_to(folder).as_posix()}\n"
        for path in iter_files(folder)
        if path.absolute() != target.absolute()
    ]
    target.write_text("".join(lines), encoding="utf-8")


def read_manifest(path: Path) -> dict[str, str]:
    """Return the SHA-256 by path; raises `CallerError` when it is no manifest."""
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise CallerError(
                f"line {number} of {str(path)!r} is not `<sha256>  <file>`",
                next_step="Write one with --manifest.",
            )
        found[match[2].removeprefix("./")] = match[1].lower()
    return found


def compare_manifest(folder: Path, manifest: Path) -> Check:
    """Return whether every file of the manifest is there with the same bytes; others are named, too."""
    expected = read_manifest(manifest)
    there = {
        path.relative_to(folder).as_posix(): path
        for path in iter_files(folder)
        if path.absolute() != manifest.absolute()
    }
    missing = sorted(expected.keys() - there.keys())
    changed = sorted(
        name for name in expected.keys() & there.keys() if hash_file(there[name]) != expected[name]
    )
    extra = sorted(there.keys() - expected.keys())
    problems = [
        f"{label}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        for label, names in (("changed", changed), ("missing", missing), ("not in the manifest", extra))
        if names
    ]
    if changed or missing:
        return Check("checksums", FAIL, "; ".join(problems), "Copy these files again, and compare again.")
    return Check("checksums", OK, "; ".join([f"{len(expected)} files are as they were", *problems]))
