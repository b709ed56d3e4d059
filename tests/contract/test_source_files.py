"""Every store of uploaded bytes keeps the promises of `kb.ports.SourceFiles`."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb.adapters.disk_files import DiskFiles
from kb.errors import BackendError, DamagedFileError, UploadTooLargeError
from kb.ports import SourceFiles

Opener = Callable[[Path], SourceFiles]

STORES: dict[str, Opener] = {"disk": lambda tmp: DiskFiles(tmp / "new" / "files")}

BIG = 3 * 1024 * 1024 + 17


@pytest.fixture(params=list(STORES))
def files(request: pytest.FixtureRequest, tmp_path: Path) -> SourceFiles:
    return STORES[request.param](tmp_path)


def list_files(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file()]


class FailingStream(io.RawIOBase):
    """Breaks off after some bytes, as a client does that goes away."""

    def __init__(self, error: BaseException) -> None:
        self._pieces = [b"some bytes"]
        self._error = error

    def read(self, size: int = -1) -> bytes:
        if self._pieces:
            return self._pieces.pop()
        raise self._error


def test_saved_bytes_come_back_whole(files: SourceFiles) -> None:
    content = os.urandom(BIG)

    stored = files.save(io.BytesIO(content), max_bytes=BIG)

    assert stored.sha256 == hashlib.sha256(content).hexdigest()
    assert stored.size_bytes == BIG
    assert files.get_path(stored.sha256).read_bytes() == content


def test_no_bytes_are_a_file_too(files: SourceFiles) -> None:
    stored = files.save(io.BytesIO(b""), max_bytes=10)

    assert stored.size_bytes == 0
    assert files.get_path(stored.sha256).read_bytes() == b""


def test_the_same_bytes_twice_are_one_file(files: SourceFiles, tmp_path: Path) -> None:
    first = files.save(io.BytesIO(b"manual"), max_bytes=10)
    second = files.save(io.BytesIO(b"manual"), max_bytes=10)

    assert first == second
    assert list_files(tmp_path) == [files.get_path(first.sha256)]


def test_saving_again_mends_a_damaged_copy(files: SourceFiles) -> None:
    stored = files.save(io.BytesIO(b"manual"), max_bytes=10)
    files.get_path(stored.sha256).write_bytes(b"man")

    files.save(io.BytesIO(b"manual"), max_bytes=10)

    assert files.get_path(stored.sha256).read_bytes() == b"manual"


@pytest.mark.parametrize("excess", [1, BIG])
def test_more_than_the_limit_is_refused_and_nothing_is_kept(
    files: SourceFiles, tmp_path: Path, excess: int
) -> None:
    with pytest.raises(UploadTooLargeError) as caught:
        files.save(io.BytesIO(bytes(100 + excess)), max_bytes=100)

    assert caught.value.limit_bytes == 100
    assert list_files(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError("cut off"), KeyboardInterrupt()])
def test_an_upload_that_breaks_off_leaves_nothing(
    files: SourceFiles, tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        files.save(FailingStream(error), max_bytes=100)  # type: ignore[arg-type]  # reading is all it needs

    assert list_files(tmp_path) == []


def test_deleted_bytes_are_gone_and_may_be_deleted_again(files: SourceFiles) -> None:
    stored = files.save(io.BytesIO(b"manual"), max_bytes=10)

    files.delete(stored.sha256)
    files.delete(stored.sha256)

    with pytest.raises(DamagedFileError):
        files.get_path(stored.sha256)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "a" * 63, "A" * 64, f"{'a' * 64}\n"])
def test_a_name_that_is_no_hash_never_becomes_a_path(files: SourceFiles, name: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        files.get_path(name)
    with pytest.raises(ValueError, match="SHA-256"):
        files.delete(name)


def test_many_may_save_the_same_bytes_at_once(files: SourceFiles, tmp_path: Path) -> None:
    content = os.urandom(100_000)

    with ThreadPoolExecutor(4) as pool:
        saved = list(pool.map(lambda _: files.save(io.BytesIO(content), max_bytes=BIG), range(12)))

    assert len(set(saved)) == 1
    assert files.get_path(saved[0].sha256).read_bytes() == content
    assert len(list_files(tmp_path)) == 1


# -- what only a disk can do


def test_a_folder_that_cannot_be_written_is_a_backend_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(BackendError):
        DiskFiles(tmp_path / "file").save(io.BytesIO(b"manual"), max_bytes=10)


def test_what_was_made_of_the_bytes_goes_with_them(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path / "files", derived=tmp_path / "parsed")
    kept, gone = (files.save(io.BytesIO(content), max_bytes=10).sha256 for content in (b"one", b"two"))
    for sha256 in (kept, gone):
        (tmp_path / "parsed" / sha256 / "v1").mkdir(parents=True)

    files.delete(gone)
    files.delete(gone)

    assert [folder.name for folder in (tmp_path / "parsed").iterdir()] == [kept]


def test_guarded_blocks_run_one_after_the_other(files: SourceFiles, tmp_path: Path) -> None:
    log: list[str] = []

    def work(number: int) -> None:
        # a second object for the folder, as another process has it
        with STORES["disk"](tmp_path).guard():
            log.append(f"in {number}")
            files.save(io.BytesIO(os.urandom(100_000)), max_bytes=BIG)
            log.append(f"out {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))

    assert len(log) == 16
    assert all(log[i].replace("in", "out") == log[i + 1] for i in range(0, 16, 2))
