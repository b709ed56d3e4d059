from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kb.client import (
    AskDelta,
    AskFinished,
    ClientError,
    KbClient,
    ServiceUnreachableError,
    UnexpectedReplyError,
    iter_server_sent_events,
)
from tests.unit.kb.cli.fake_service import API_KEY, PAGE_TEXT, QUOTE, State, create_app, serve


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[State, str]]:
    state = State()
    with serve(create_app(state)) as url:
        yield state, url


@pytest.fixture
def state(running: tuple[State, str]) -> State:
    found, _ = running
    fresh = State()
    for name in State.__dataclass_fields__:
        setattr(found, name, getattr(fresh, name))
    return found


@pytest.fixture
def client(running: tuple[State, str], state: State) -> Iterator[KbClient]:
    with KbClient(running[1] + "/") as opened:
        yield opened


@contextmanager
def raw_server(reply: bytes) -> Iterator[str]:
    """Answer one connection with these bytes, whatever it asks."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_health_is_readable_whether_ready_or_not(client: KbClient, state: State) -> None:
    assert client.get_live().version == "0.1.0"
    assert client.get_ready().ready

    state.dependencies[0] = state.dependencies[0].model_copy(update={"ok": False})

    assert not client.get_ready().ready


def test_collections_are_created_once(client: KbClient) -> None:
    assert client.ensure_collection("压机 A/B")
    assert not client.ensure_collection("压机 A/B")
    assert [item.name for item in client.list_collections()] == ["压机 A/B"]


def test_names_with_any_character_reach_their_collection(client: KbClient) -> None:
    client.create_collection("压机?x=1")

    assert client.get_collection("压机?x=1").id == "c-压机?x=1"
    client.delete_collection("压机?x=1")

    assert client.list_collections() == []


def test_an_upload_reports_its_bytes_and_keeps_its_name(
    client: KbClient, state: State, tmp_path: Path
) -> None:
    client.create_collection("default")
    body = b"%PDF" * 200_000
    path = tmp_path / "压机手册.pdf"
    path.write_bytes(body)
    sent: list[int] = []

    result = client.upload("default", path, on_bytes=sent.append)

    assert result.document is not None
    assert result.document.name == "压机手册.pdf"
    assert state.bodies["压机手册.pdf"] == body
    assert sum(sent) == len(body)
    assert len(sent) > 2


def test_the_same_bytes_are_a_duplicate_unless_forced(client: KbClient, tmp_path: Path) -> None:
    client.create_collection("default")
    path = tmp_path / "a.pdf"
    path.write_bytes(b"a")

    first = client.upload("default", path, name="b.pdf")
    second = client.upload("default", path)
    third = client.upload("default", path, force=True)

    assert first.document is not None
    assert first.document.name == "b.pdf"
    assert (second.duplicate, third.duplicate) == (True, False)


def test_documents_come_from_all_pages_of_the_list(client: KbClient, tmp_path: Path) -> None:
    client.create_collection("default")
    for number in range(5):
        path = tmp_path / f"{number}.pdf"
        path.write_bytes(b"%d" % number)
        client.upload("default", path)

    assert [item.name for item in client.iter_documents("default")] == [f"{n}.pdf" for n in range(5)]
    assert list(client.iter_documents("default", state="ready")) == []


def test_a_document_can_be_followed_read_and_deleted(client: KbClient, tmp_path: Path) -> None:
    client.create_collection("default")
    path = tmp_path / "a.pdf"
    path.write_bytes(b"a")
    document = client.upload("default", path).document
    assert document is not None

    states = [client.get_job(document.job_id).document_state for _ in range(4)]
    detail = client.get_document("default", document.id)

    assert states == ["queued", "parsing", "embedding", "ready"]
    assert len(detail.pages) == 2
    assert client.get_page("default", document.id, 1).text == PAGE_TEXT
    assert [job.id for job in client.list_jobs(collection="default", state="succeeded")] == [document.job_id]
    assert client.retry_job(document.job_id).state == "queued"
    assert client.cancel_job(document.job_id).cancel_requested
    client.delete_document("default", document.id)
    assert list(client.iter_documents("default")) == []


def test_search_and_answers_are_typed(client: KbClient) -> None:
    client.create_collection("default")

    found = client.search("E-0471", top_k=1)
    answer = client.ask("E-0471 怎么处理？")

    assert [passage.page_start for passage in found.passages] == [3]
    assert answer.citations[0].quote == QUOTE


def test_a_streamed_answer_ends_with_the_whole(client: KbClient) -> None:
    client.create_collection("default")

    *deltas, last = client.stream("E-0471 怎么处理？")

    assert isinstance(last, AskFinished)
    assert "".join(delta.text for delta in deltas if isinstance(delta, AskDelta)) == last.answer.answer


def test_an_error_within_a_stream_is_raised_after_its_text(client: KbClient) -> None:
    client.create_collection("default")
    events = client.stream("crash")

    assert isinstance(next(events), AskDelta)
    with pytest.raises(ClientError, match="the runtime went away") as caught:
        list(events)

    assert caught.value.code == "runtime_unavailable"


def test_a_stream_that_breaks_off_is_no_answer(client: KbClient, state: State) -> None:
    client.create_collection("default")
    state.break_stream = True

    with pytest.raises(ClientError, match="broke off"):
        list(client.stream("F30001"))


def test_an_error_of_the_api_keeps_its_code_and_next_step(client: KbClient) -> None:
    with pytest.raises(ClientError) as caught:
        client.get_collection("none")
    with pytest.raises(ClientError) as streamed:
        list(client.stream("F30001", collection="none"))

    error = caught.value
    assert (error.code, error.status, error.next_step) == ("collection_not_found", 404, "Create it.")
    assert error.request_id == "r-1"
    assert streamed.value.code == "collection_not_found"


def test_the_key_is_sent(running: tuple[State, str], state: State) -> None:
    state.api_key = API_KEY

    with KbClient(running[1]) as without, pytest.raises(ClientError, match="API key"):
        without.list_collections()
    with KbClient(running[1], api_key=API_KEY) as client:
        assert client.list_collections() == []


def test_nobody_at_the_address_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"

        with KbClient(url) as client, pytest.raises(ServiceUnreachableError) as caught:
            client.get_live()

    assert caught.value.message == f"the service does not answer at {url}"
    assert "kb up" in caught.value.next_step


@pytest.mark.parametrize("url", ["http://127.0.0.1:port", "ftp://127.0.0.1"])
def test_a_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ServiceUnreachableError, match="not a URL"), KbClient(url) as client:
        client.get_live()


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>",
    ],
)
def test_another_program_at_the_address_is_recognised(reply: bytes) -> None:
    with raw_server(reply) as url, KbClient(url) as client, pytest.raises(UnexpectedReplyError, match=url):
        client.get_live()


def test_a_connection_that_breaks_counts_as_unreachable() -> None:
    with (
        raw_server(b"") as url,
        KbClient(url) as client,
        pytest.raises(ServiceUnreachableError, match="broke"),
    ):
        client.get_live()


def test_a_service_that_keeps_silent_counts_as_unreachable() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        with KbClient(url, timeout_s=0.2) as client, pytest.raises(ServiceUnreachableError, match="in time"):
            client.get_live()


def test_an_event_of_another_shape_is_not_an_answer() -> None:
    body = b'event: answer\ndata: {"id": 1}\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    with (
        raw_server(head + body) as url,
        KbClient(url) as client,
        pytest.raises(UnexpectedReplyError, match="'answer'"),
    ):
        list(client.stream("F30001"))


def test_server_sent_events_are_read_as_the_standard_says() -> None:
    lines = [
        ": hello",
        "",
        "event: delta",
        "data: one",
        "data:two",
        "id: 7",
        "",
        "data: x",
        "",
        "event: lost",
    ]

    assert list(iter_server_sent_events(lines)) == [("delta", "one\ntwo"), ("message", "x")]
