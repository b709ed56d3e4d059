from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kb.watched_folder import (
    FolderChanges,
    WatchedFile,
    WatchedFolder,
    find_memory,
    name_documents,
    scan,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "manuals"
    (path / "press").mkdir(parents=True)
    (path / "a.txt").write_text("a")
    (path / "press" / "b.txt").write_text("b")
    return path


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "memory.json"


def send_all(folder: WatchedFolder) -> FolderChanges:
    folder.look()
    changes = folder.look()
    for path in changes.changed:
        folder.remember(path, WatchedFile(folder.get_signature(path), "00", f"d-{path}"))
    folder.save()
    return changes


def test_files_count_at_the_second_look_that_finds_them_the_same(root: Path, memory: Path) -> None:
    folder = WatchedFolder(root, memory=memory)

    first = folder.look()
    (root / "a.txt").write_text("a, still growing")
    second, third = folder.look(), folder.look()

    assert first == FolderChanges()
    assert second.changed == ("press/b.txt",)
    assert third.changed == ("a.txt", "press/b.txt")


def test_what_was_sent_is_not_sent_again_until_it_changes(root: Path, memory: Path) -> None:
    folder = WatchedFolder(root, memory=memory)
    send_all(folder)

    unchanged = folder.look()
    os.utime(root / "a.txt", ns=(1, 1))
    folder.look()

    assert unchanged == FolderChanges()
    assert folder.look().changed == ("a.txt",)


def test_a_deleted_file_counts_at_the_second_look(root: Path, memory: Path) -> None:
    folder = WatchedFolder(root, memory=memory)
    send_all(folder)
    (root / "press" / "b.txt").unlink()

    assert folder.look().deleted == ()
    assert folder.look().deleted == ("press/b.txt",)
    folder.forget("press/b.txt")
    assert folder.look() == FolderChanges()


def test_the_next_run_knows_what_this_one_sent(root: Path, memory: Path) -> None:
    send_all(WatchedFolder(root, memory=memory))
    (root / "a.txt").unlink()
    (root / "c.txt").write_text("c")

    later = WatchedFolder(root, memory=memory)
    later.look()

    assert later.look() == FolderChanges(("c.txt",), ("a.txt",))
    assert later.is_needed("d-a.txt")
    later.forget("a.txt")
    assert not later.is_needed("d-a.txt")


def test_a_folder_that_was_emptied_is_followed(root: Path, memory: Path) -> None:
    send_all(WatchedFolder(root, memory=memory))
    (root / "a.txt").unlink()
    (root / "press" / "b.txt").unlink()

    later = WatchedFolder(root, memory=memory)
    later.look()

    assert later.look().deleted == ("a.txt", "press/b.txt")


def test_an_empty_mount_point_and_a_missing_folder_delete_nothing(root: Path, memory: Path) -> None:
    folder = WatchedFolder(root, memory=memory)
    send_all(folder)
    root.rename(root.with_name("share"))

    missing = [folder.look(), folder.look()]
    root.mkdir()
    empty = [folder.look(), folder.look()]
    root.rmdir()
    root.with_name("share").rename(root)
    back = [folder.look(), folder.look(), folder.look()]

    assert all(changes == FolderChanges(is_gone=True) for changes in (*missing, *empty))
    assert all(changes == FolderChanges() for changes in back)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": {"a.txt": {}}, "place": []}', '{"files": 1}'])
def test_a_broken_memory_is_an_empty_one(root: Path, memory: Path, text: str) -> None:
    memory.parent.mkdir()
    memory.write_text(text)

    folder = WatchedFolder(root, memory=memory)

    assert dict(folder.files) == {}
    assert send_all(folder).changed == ("a.txt", "press/b.txt")
    assert json.loads(memory.read_text())["files"].keys() == {"a.txt", "press/b.txt"}


def test_hidden_and_unfinished_files_and_links_to_folders_are_left_out(root: Path) -> None:
    for name in (".hidden", "~$a.docx", "b.pdf.part", "c.TMP", "d.crdownload"):
        (root / name).write_text("x")
    (root / ".git").mkdir()
    (root / ".git" / "e.txt").write_text("x")
    (root / "loop").symlink_to(root)

    assert sorted(scan(root)) == ["a.txt", "press/b.txt"]


def test_a_document_is_named_after_its_place() -> None:
    names = name_documents(["a.txt", "press/2024/b.pdf", "press/压机.pdf"])

    assert names == {
        "a.txt": "a.txt",
        "press/2024/b.pdf": "press › 2024 › b.pdf",
        "press/压机.pdf": "press › 压机.pdf",
    }


def test_names_that_are_too_long_or_alike_are_told_apart() -> None:
    long = "/".join(["部门" * 20] * 4)
    names = name_documents([f"{long}/a.pdf", f"{long}/b.pdf", "x  y.txt", "x y.txt"])

    assert len(set(names.values())) == 4
    assert all(len(name.encode()) <= 255 for name in names.values())
    assert names[f"{long}/a.pdf"].endswith(" a.pdf")


def test_each_folder_service_and_collection_has_a_memory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = {
        find_memory(root, url=url, collection=collection)
        for root in (tmp_path / "a", tmp_path / "b")
        for url in ("http://one", "http://two")
        for collection in ("default", "press")
    }

    assert len(places) == 8
    assert all(place.is_relative_to(tmp_path / "kb" / "watch") for place in places)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert find_memory(tmp_path, url="u", collection="c").is_relative_to(
        tmp_path / "home" / ".local" / "state"
    )
