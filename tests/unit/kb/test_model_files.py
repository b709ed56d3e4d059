from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from kb.model_files import hash_file, hash_folder, read_json_object, write_json


def test_a_hash_is_that_of_the_content_and_reports_progress(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    steps: list[tuple[int, int]] = []

    found = hash_file(path, progress=lambda done, total: steps.append((done, total)))

    assert found == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert steps[-1] == (3_000_000, 3_000_000)


def test_a_hash_is_remembered_until_size_or_time_change(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    first = hash_folder(tmp_path, ["weights"], cache_name="hashes.json")
    state = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))

    remembered = hash_folder(tmp_path, ["weights"], cache_name="hashes.json")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    renewed = hash_folder(tmp_path, ["weights"], cache_name="hashes.json")

    assert remembered == first
    assert renewed["weights"] == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("cache", ["", "[]", '{"weights": 1}', '{"weights": {"sha256": 2}}', "{damaged"])
def test_a_damaged_memory_is_no_harm(tmp_path: Path, cache: str) -> None:
    (tmp_path / "weights").write_bytes(b"one")
    (tmp_path / "hashes.json").write_text(cache)

    found = hash_folder(tmp_path, ["weights"], cache_name="hashes.json")

    assert found == {"weights": hashlib.sha256(b"one").hexdigest()}


def test_a_memory_that_cant_be_written_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"one")
    (tmp_path / "hashes.json").mkdir()

    assert hash_folder(tmp_path, ["weights"], cache_name="hashes.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hashes.json", "weights"]


def test_json_is_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"名": 1})

    assert read_json_object(tmp_path / "a.json") == {"名": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
