from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb.cli.watch import FolderWatch
from kb.client import KbClient
from kb.watched_folder import WatchedFolder
from tests.unit.kb.cli.conftest import Run
from tests.unit.kb.cli.fake_service import State, make_document

MakeFile = Callable[..., Path]
Event = tuple[str, str]


class Watched:
    """A folder, the watch over it, and what it told."""

    def __init__(self, client: KbClient, root: Path, memory: Path) -> None:
        self.events: list[Event] = []
        self.details: list[str] = []
        self.root = root
        self._watch = FolderWatch(
            client, root, WatchedFolder(root, memory=memory), collection="press", tell=self._tell
        )

    def _tell(self, event: str, path: str, details: str) -> None:
        self.events.append((event, path))
        self.details.append(details)

    def settle(self, steps: int = 8) -> list[Event]:
        """Return what is told in the next steps."""
        self.events.clear()
        for _ in range(steps):
            self._watch.step()
        return list(self.events)


@pytest.fixture
def watched(client: KbClient, make_file: MakeFile, tmp_path: Path) -> Watched:
    root = make_file("a.pdf", "one").parent
    make_file("sub/b.pdf", "two")
    return Watched(client, root, tmp_path / "memory.json")


def list_names(state: State) -> list[str]:
    return sorted(document.name for document in state.documents("press").values())


def test_new_files_are_added_and_followed_to_their_end(watched: Watched, state: State) -> None:
    told = watched.settle()

    assert told[:2] == [("added", "a.pdf"), ("added", "sub/b.pdf")]
    assert sorted(told[2:]) == [("ready", "a.pdf"), ("ready", "sub/b.pdf")]
    assert list_names(state) == ["a.pdf", "sub › b.pdf"]
    assert watched.settle() == []


def test_a_changed_file_replaces_the_document_it_was(
    watched: Watched, make_file: MakeFile, state: State
) -> None:
    watched.settle()
    make_file("a.pdf", "one, second edition")

    told = watched.settle()

    # the fake service keeps the former version, as the real one does under another name
    assert told == [("changed", "a.pdf"), ("ready", "a.pdf")]
    assert state.bodies["a.pdf"] == b"one, second edition"
    assert len(list_names(state)) == 2


def test_a_touched_file_is_not_sent_again(watched: Watched, state: State) -> None:
    watched.settle()
    state.bodies.clear()
    (watched.root / "a.pdf").touch()

    assert watched.settle() == []
    assert state.bodies == {}


def test_a_deleted_file_takes_its_document_along_and_no_other(watched: Watched, state: State) -> None:
    other = make_document("press", "other.pdf", b"from somebody else")
    watched.settle()
    state.documents("press")[other.id] = other
    (watched.root / "a.pdf").unlink()

    assert watched.settle() == [("deleted", "a.pdf")]
    assert list_names(state) == ["other.pdf", "sub › b.pdf"]


def test_attachments_are_not_taken_for_deleted_files(watched: Watched, state: State) -> None:
    watched.settle()
    mail = next(item for item in state.documents("press").values() if item.name == "a.pdf")
    attached = make_document("press", "a.pdf › c.pdf", b"attached").model_copy(update={"parent_id": mail.id})
    state.documents("press")[attached.id] = attached

    assert watched.settle() == []
    assert state.deletions == []


def test_a_deleted_file_that_is_attached_somewhere_is_only_taken_back(watched: Watched, state: State) -> None:
    watched.settle()
    (watched.root / "a.pdf").unlink()

    watched.settle()

    assert [keep_attached for _, keep_attached in state.deletions] == [True]


def test_two_files_of_the_same_bytes_are_one_document_until_both_are_gone(
    watched: Watched, make_file: MakeFile, state: State
) -> None:
    make_file("copy.pdf", "one")
    watched.settle()
    (watched.root / "copy.pdf").unlink()

    assert watched.settle() == [("deleted", "copy.pdf")]
    assert list_names(state) == ["a.pdf", "sub › b.pdf"]


def test_a_document_that_is_gone_already_is_no_trouble(watched: Watched, state: State) -> None:
    watched.settle()
    state.documents("press").clear()
    (watched.root / "a.pdf").unlink()

    assert watched.settle() == [("deleted", "a.pdf")]


def test_a_job_that_is_gone_is_not_asked_for_again(watched: Watched, state: State) -> None:
    watched.settle(2)
    state.documents("press").clear()

    assert watched.settle() == []


def test_what_is_refused_or_fails_is_told_once_and_tried_again_when_it_changes(
    watched: Watched, make_file: MakeFile, state: State
) -> None:
    make_file("setup.exe", "three")
    make_file("video.pdf", "TOO LARGE")
    make_file("broken.pdf", "four")

    told = watched.settle()
    silent = watched.settle()
    make_file("video.pdf", "small now")

    assert {("refused", "setup.exe"), ("refused", "video.pdf"), ("failed", "broken.pdf")} < set(told)
    assert any(details.startswith("damaged_file") for details in watched.details)
    assert silent == []
    assert watched.settle() == [("added", "video.pdf"), ("ready", "video.pdf")]


def test_a_file_that_cannot_be_read_is_told_once_and_tried_again(
    watched: Watched, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = watched.root / "a.pdf"
    real_open = Path.open

    def open_unless_locked(path: Path, *arguments: Any, **options: Any) -> Any:
        if path == locked:
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_unless_locked)
        told = watched.settle()

    assert [event for event in told if event[1] == "a.pdf"] == [("unreadable", "a.pdf")]
    assert watched.settle() == [("added", "a.pdf"), ("ready", "a.pdf")]
    assert list_names(state) == ["a.pdf", "sub › b.pdf"]


def test_the_former_document_of_another_name_goes_once_the_new_one_is_ready(
    watched: Watched, make_file: MakeFile, state: State
) -> None:
    former = make_document("press", "uploaded by hand.pdf", b"one", state="ready")
    state.collections["press"] = {former.id: former}
    watched.settle()
    assert list_names(state) == ["sub › b.pdf", "uploaded by hand.pdf"]
    make_file("a.pdf", "one, second edition")

    watched.settle()

    assert list_names(state) == ["a.pdf", "sub › b.pdf"]


def test_a_lost_folder_is_told_once_and_deletes_nothing(watched: Watched, state: State) -> None:
    watched.settle()
    watched.root.rename(watched.root.with_name("elsewhere"))

    assert watched.settle() == [("folder_gone", str(watched.root))]
    assert list_names(state) == ["a.pdf", "sub › b.pdf"]


def test_a_service_that_is_away_is_told_once_and_waited_for(
    watched: Watched, tmp_path: Path, client: KbClient
) -> None:
    with KbClient("http://127.0.0.1:1") as nobody:
        away = Watched(nobody, watched.root, tmp_path / "away.json")
        told = away.settle()

    assert told == [("service_unreachable", str(watched.root))]


def test_a_wrong_key_ends_the_watch(watched: Watched, state: State) -> None:
    state.api_key = "another"

    with pytest.raises(Exception, match="key"):
        watched.settle()


def test_watching_takes_one_folder_and_no_other_options(run: Run, make_file: MakeFile) -> None:
    path = make_file("a.pdf", "one")

    assert run("ingest", "--watch", str(path)).code == 2
    assert run("ingest", "--watch", str(path.parent), str(path.parent)).code == 2
    assert run("ingest", "--watch", str(path.parent), "--force").code == 2
