from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kb.cli.following import IngestRow, follow
from kb.cli.ingest import collect_files, ingest_files, name_uploads
from kb.cli.scratch import NotIngestedError
from kb.client import KbClient, ServiceUnreachableError
from tests.unit.kb.cli.conftest import Run
from tests.unit.kb.cli.fake_service import State, create_app, serve
from tests.unit.kb.waiting import wait_for

MakeFile = Callable[..., Path]


def test_folders_are_read_in_order_without_hidden_files(make_file: MakeFile) -> None:
    root = make_file("b.pdf").parent
    for name in ("a.pdf", ".hidden.pdf", "sub/c.pdf", ".git/d.pdf", "sub/.x/e.pdf", "z/f.pdf"):
        make_file(name)

    found = [str(path.relative_to(root)) for path in collect_files([root, root / "a.pdf"])]

    assert found == ["a.pdf", "b.pdf", "sub/c.pdf", "z/f.pdf"]
    assert collect_files([root / ".hidden.pdf"]) == [root / ".hidden.pdf"]


def test_files_of_one_name_are_told_apart_by_their_folders() -> None:
    files = [Path("/m/press/a.pdf"), Path("/m/drive/a.pdf"), Path("/old/drive/a.pdf"), Path("/m/b.pdf")]

    assert name_uploads(files) == ["press - a.pdf", "drive - a.pdf", "old - drive - a.pdf", "b.pdf"]


def test_documents_are_followed_to_their_end(run: Run, make_file: MakeFile, state: State) -> None:
    folder = make_file("压机手册.pdf", "one").parent
    make_file("sub/drive.pdf", "two")

    ended = run("ingest", str(folder), "-c", "压机")

    assert ended.code == 0
    for words in (
        "Created the collection '压机'",
        "压机手册.pdf: parsing",
        "✓ drive.pdf  ready",
        "2 documents: 2 ready",
    ):
        assert words in ended.out
    assert {document.state for document in state.documents("压机").values()} == {"ready"}


def test_what_came_attached_is_followed_too(run: Run, make_file: MakeFile, state: State) -> None:
    state.attached = {"mail.eml": ("plan.eml", "broken.pdf"), "mail.eml › plan.eml": ("deep.pdf",)}
    folder = make_file("mail.eml", "one").parent
    make_file("z.pdf", "two")

    ended = run("ingest", str(folder), "--json")

    rows = [(row["name"], row["state"]) for row in ended.json["documents"]]
    assert rows == [
        ("mail.eml", "ready"),
        ("mail.eml › broken.pdf", "failed"),
        ("mail.eml › plan.eml", "ready"),
        ("mail.eml › plan.eml › deep.pdf", "ready"),
        ("z.pdf", "ready"),
    ]
    assert ended.code == 1


def test_one_bad_file_does_not_sink_the_rest(run: Run, make_file: MakeFile) -> None:
    folder = make_file("a.pdf", "one").parent
    make_file("broken.pdf", "two")
    make_file("setup.exe", "three")
    make_file("video.pdf", "TOO LARGE")

    ended = run("ingest", str(folder))

    assert ended.code == 1
    for words in ("damaged_file", "→ Save it again.", "unsupported_format", "too_large", "→ Split the file."):
        assert words in ended.out
    assert "4 documents: 1 ready, 3 failed" in ended.out


def test_files_that_cannot_be_read_are_reported(client: KbClient, make_file: MakeFile) -> None:
    path = make_file("a.pdf", "one")

    rows = ingest_files(
        client, [path.parent / "gone.pdf", path], collection="default", force=False, wait=True, console=None
    )

    assert [row.state for row in rows] == ["failed", "ready"]
    assert rows[0].problem is not None
    assert rows[0].problem.code == "unreadable_file"


def test_what_is_there_already_is_said(run: Run, make_file: MakeFile) -> None:
    path = make_file("a.pdf", "one")

    first, second, forced = (
        run("ingest", str(path)),
        run("ingest", str(path)),
        run("ingest", str(path), "--force"),
    )

    assert "1 document: 1 ready" in first.out
    assert (second.code, "1 document: 1 unchanged" in second.out) == (0, True)
    assert "1 document: 1 ready" in forced.out


def test_a_folder_again_sends_only_what_changed(run: Run, make_file: MakeFile, state: State) -> None:
    folder = make_file("a.pdf", "one").parent
    make_file("b.pdf", "two")
    make_file("broken.pdf", "three")
    run("ingest", str(folder))
    make_file("b.pdf", "two, second edition")
    make_file("copy.pdf", "one")
    state.bodies.clear()

    ended = run("ingest", str(folder))

    assert sorted(state.bodies) == ["b.pdf", "broken.pdf"]
    assert "1 unchanged" in ended.out
    assert "1 already there" in ended.out


def test_the_password_comes_from_a_pipe_and_goes_before_the_files(
    run: Run, make_file: MakeFile, state: State
) -> None:
    ended = run("ingest", str(make_file("a.pdf", "one")), "--password-prompt", answer="öffne dich\n")

    assert ended.code == 0
    assert state.passwords == {"a.pdf": "öffne dich"}
    assert "öffne" not in ended.out + ended.err


def test_without_waiting_the_documents_are_queued(run: Run, make_file: MakeFile) -> None:
    ended = run("ingest", str(make_file("a.pdf", "one")), "--no-wait", "--json")

    assert ended.code == 0
    assert [row["state"] for row in ended.json["documents"]] == ["queued"]


def test_as_json_each_file_has_its_outcome(run: Run, make_file: MakeFile) -> None:
    ended = run("ingest", str(make_file("a.pdf", "one")), str(make_file("setup.exe", "two")), "--json")

    first, second = ended.json["documents"]
    assert ended.code == 1
    assert (first["state"], first["document"]["chunk_count"]) == ("ready", 9)
    assert (second["state"], second["error"]["code"]) == ("failed", "unsupported_format")


def test_nothing_to_ingest_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    assert run("ingest", str(tmp_path / "empty")).code == 2
    assert run("ingest", str(tmp_path / "none.pdf")).code == 2


def test_a_missing_service_ends_the_whole(run: Run, make_file: MakeFile) -> None:
    assert run("ingest", str(make_file("a.pdf", "one")), KB_API_URL="http://127.0.0.1:1").code == 3


def test_a_job_that_does_not_start_says_why(
    client: KbClient, make_file: MakeFile, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    state.stalled_reason = "no_live_worker"

    ingest_files(
        client, [make_file("a.pdf", "one")], collection="default", force=False, wait=True, console=Console()
    )

    shown = capsys.readouterr()
    assert "a.pdf: no_live_worker" in shown.out
    assert "Nobody works on the documents (no_live_worker). `kb status` shows" in shown.err


def test_without_a_worker_or_a_watcher_following_ends_after_a_while(
    client: KbClient, make_file: MakeFile, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    state.stalled_reason, state.stuck_jobs = "no_live_worker", True
    client.create_collection("default")
    document = client.upload("default", make_file("a.pdf", "one")).document

    with pytest.raises(NotIngestedError, match="no_live_worker"):
        follow(
            client, [IngestRow(Path("a.pdf"), "a.pdf", document)], console=Console(quiet=True), patience_s=0
        )

    assert capsys.readouterr().err.count("no_live_worker") == 1


def test_a_service_that_goes_away_is_said_at_once(
    make_file: MakeFile, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(create_app(State())) as url, KbClient(url) as client:
        client.create_collection("default")
        document = client.upload("default", make_file("a.pdf", "one")).document
    row = IngestRow(Path("a.pdf"), "a.pdf", document)

    with KbClient(url) as client, pytest.raises(ServiceUnreachableError):
        follow(client, [row], console=Console(quiet=True), patience_s=0)

    assert "does not answer" in capsys.readouterr().err


def test_on_a_terminal_there_is_a_bar_per_document(client: KbClient, make_file: MakeFile) -> None:
    console = Console(force_terminal=True, width=120, record=True, color_system=None)

    ingest_files(
        client,
        [make_file("压机手册.pdf", "one"), make_file("broken.pdf", "two")],
        collection="default",
        force=False,
        wait=True,
        console=console,
    )

    shown = console.export_text()
    assert "✓ 压机手册.pdf  ready" in shown
    assert "✗ broken.pdf  failed" in shown
    assert "damaged_file" in shown


def test_a_document_deleted_meanwhile_is_a_row(client: KbClient, make_file: MakeFile, state: State) -> None:
    client.create_collection("default")
    state.stuck_jobs = True
    path = make_file("a.pdf", "one")
    rows: list[str] = []

    def follow() -> None:
        found = ingest_files(client, [path], collection="default", force=False, wait=True, console=None)
        rows.extend(row.state for row in found)

    thread = threading.Thread(target=follow)
    thread.start()
    wait_for(lambda: bool(state.documents("default")))
    state.documents("default").clear()
    thread.join(30)

    assert rows == ["failed"]


def test_interrupted_following_leaves_the_jobs_to_the_workers(
    run: Run, make_file: MakeFile, state: State
) -> None:
    state.stuck_jobs = True
    path = make_file("a.pdf", "one")
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        wait_for(lambda: state.looked > 1)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    ended = run("ingest", str(path))
    thread.join(30)

    assert ended.code == 130
    assert "Left 1 of 1 documents to the workers" in ended.out
