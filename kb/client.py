"""A typed client of the API, used by the kb command and open to programs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from kb.errors import KbError
from kb.presets import DEFAULT_PRESET, PresetName
from kb.schemas import (
    AnswerOut,
    AskIn,
    AuditEventOut,
    AuditOut,
    CalibrationIn,
    CalibrationOut,
    CollectionIn,
    CollectionOut,
    CollectionsOut,
    DocumentDetailOut,
    DocumentOut,
    DocumentsOut,
    ErrorOut,
    ExplainIn,
    ExplainOut,
    FaultLookUpOut,
    FaultSearchIn,
    FaultSearchOut,
    JobOut,
    JobsOut,
    KeyIn,
    KeyOut,
    KeysOut,
    LiveOut,
    MessageIn,
    NewKeyOut,
    PageOut,
    ReadyOut,
    ReceiptOut,
    ReplayOut,
    RotateKeyIn,
    ScopeIn,
    SearchIn,
    SearchMode,
    SearchOut,
    TagsIn,
    UploadOut,
    UploadResultOut,
)

_Model = TypeVar("_Model", bound=BaseModel)

ByteProgress = Callable[[int], None]
"""Called with the number of bytes sent since the last call."""

# An answer on a small CPU may need minutes before its first word; an upload ends with a hash of all bytes.
_SLOW_S = 900.0


class ClientError(KbError):
    """The API answered with an error; `code` and `next_step` are the API's own."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        next_step: str = "",
        status: int = 0,
        request_id: str = "",
        suggestions: Sequence[str] = (),
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.code = code
        self.status = status
        self.request_id = request_id
        self.suggestions = tuple(suggestions)


class ServiceUnreachableError(ClientError):
    """No API answers at the address."""

    def __init__(self, url: str, *, reason: str = "") -> None:
        super().__init__(
            f"the service does not answer at {url}" + (f" ({reason})" if reason else ""),
            code="service_unreachable",
            next_step="Start it with `kb up`, or set KB_API_URL to where it runs.",
        )
        self.url = url


class UnexpectedReplyError(ClientError):
    """Something answers, but not this service, or another version of it."""

    def __init__(self, url: str, *, status: int, detail: str) -> None:
        super().__init__(
            f"{url} answered {status} with something that is not from this service: {detail}",
            code="unexpected_reply",
            next_step="Check KB_API_URL, and that service and command have the same version.",
            status=status,
        )


@dataclass(frozen=True, slots=True)
class AskDelta:
    """The next piece of an answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class AskFinished:
    """Last event of an answer."""

    answer: AnswerOut


AskEvent = AskDelta | AskFinished


class KbClient:
    """Calls one API. Methods raise `ClientError` (with the API's code) or `ServiceUnreachableError`.

    Proxies and other settings of the environment are ignored: the service is on this network.
    """

    def __init__(self, base_url: str, *, api_key: str | None = None, timeout_s: float = 30.0) -> None:
        """Send nothing yet; `timeout_s` bounds quick calls, not answers and uploads."""
        self._url = base_url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        with self._translating():
            self._http = httpx.Client(
                base_url=self._url,
                headers=headers,
                trust_env=False,
                timeout=httpx.Timeout(timeout_s, connect=min(5.0, timeout_s)),
            )

    @property
    def url(self) -> str:
        """Base URL of the API."""
        return self._url

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- health
    def get_live(self) -> LiveOut:
        """Return the version of the process that answers."""
        return self._call("GET", "/health/live", LiveOut)

    def get_ready(self) -> ReadyOut:
        """Return each dependency's state; a service that is not ready is no error here."""
        return self._call("GET", "/health/ready", ReadyOut, accepted=(200, 503))

    # -- collections
    def list_collections(self) -> list[CollectionOut]:
        """Return all collections by name."""
        return self._call("GET", "/v1/collections", CollectionsOut).collections

    def get_collection(self, name: str) -> CollectionOut:
        """Return one collection."""
        return self._call("GET", _collection(name), CollectionOut)

    def create_collection(self, name: str) -> CollectionOut:
        """Create a collection; the code is `collection_exists` when it is there."""
        return self._call("POST", "/v1/collections", CollectionOut, body=_build(CollectionIn, name=name))

    def ensure_collection(self, name: str) -> bool:
        """Create the collection unless it is there; return whether it was created."""
        try:
            self.create_collection(name)
        except ClientError as error:
            if error.code == "collection_exists":
                return False
            raise
        return True

    def delete_collection(self, name: str) -> None:
        """Delete a collection with its documents."""
        self._send("DELETE", _collection(name))

    # -- documents
    def upload(
        self,
        collection: str,
        path: Path,
        *,
        name: str | None = None,
        force: bool = False,
        password: str | None = None,
        tags: Sequence[str] = (),
        on_bytes: ByteProgress | None = None,
    ) -> UploadResultOut:
        """Send one file, read in pieces, and return what became of it; `name` replaces the file's name."""
        with _CountingReader(path, on_bytes or (lambda _sent: None)) as stream:
            reply = self._send(
                "POST",
                f"{_collection(collection)}/documents",
                params={"tag": list(tags), **({"force": "true"} if force else {})},
                # the password goes first: the service hands each file on as soon as it is there
                form={"password": password} if password else None,
                files=[("files", (name or path.name, stream, "application/octet-stream"))],
                timeout_s=_SLOW_S,
            )
        return self._parse(reply, UploadOut).results[0]

    def upload_texts(self, collection: str, texts: Mapping[str, str]) -> list[UploadResultOut]:
        """Send texts as documents, by name, in one request; return what became of each, in order."""
        files = [("files", (name, text.encode("utf-8"), "text/plain")) for name, text in texts.items()]
        reply = self._send("POST", f"{_collection(collection)}/documents", files=files, timeout_s=_SLOW_S)
        return self._parse(reply, UploadOut).results

    def iter_documents(
        self, collection: str, *, state: str | None = None, parent_id: str | None = None
    ) -> Iterator[DocumentOut]:
        """Yield all documents of a collection by name, or those attached to `parent_id`."""
        wanted = {"state": state, "parent_id": parent_id}
        params = {key: value for key, value in wanted.items() if value}
        while True:
            page = self._call("GET", f"{_collection(collection)}/documents", DocumentsOut, params=params)
            yield from page.documents
            if page.next_after is None:
                return
            params = {**params, "after": page.next_after}

    def get_document(self, collection: str, document_id: str) -> DocumentDetailOut:
        """Return a document with the ledger of its pages."""
        return self._call("GET", _document(collection, document_id), DocumentDetailOut)

    def get_page(self, collection: str, document_id: str, page_number: int) -> PageOut:
        """Return the stored text of one page, counted from 1."""
        return self._call("GET", f"{_document(collection, document_id)}/pages/{page_number}", PageOut)

    def set_tags(self, collection: str, document_id: str, tags: Sequence[str]) -> DocumentOut:
        """Give a document these tags in place of former ones."""
        body = _build(TagsIn, tags=list(tags))
        return self._call("PUT", f"{_document(collection, document_id)}/tags", DocumentOut, body=body)

    def delete_document(self, collection: str, document_id: str, *, keep_attached: bool = False) -> None:
        """Delete a document and every trace of it, its attachments included.

        With `keep_attached` it stays as an attachment if another document has it attached.
        """
        params = {"keep_attached": "true"} if keep_attached else {}
        self._send("DELETE", _document(collection, document_id), params=params)

    # -- jobs
    def list_jobs(
        self, *, collection: str | None = None, state: str | None = None, limit: int = 50
    ) -> list[JobOut]:
        """Return the newest jobs."""
        wanted = {"collection": collection, "state": state, "limit": str(limit)}
        params = {key: value for key, value in wanted.items() if value is not None}
        return self._call("GET", "/v1/jobs", JobsOut, params=params).jobs

    def get_job(self, job_id: str) -> JobOut:
        """Return one job."""
        return self._call("GET", f"/v1/jobs/{quote(job_id, safe='')}", JobOut)

    def cancel_job(self, job_id: str) -> JobOut:
        """Ask a job to stop."""
        return self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/cancel", JobOut)

    def retry_job(self, job_id: str) -> JobOut:
        """Run a failed or cancelled job again."""
        return self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/retry", JobOut)

    # -- keys and the audit log
    def list_keys(self) -> list[KeyOut]:
        """Return all API keys, oldest first."""
        return self._call("GET", "/v1/keys", KeysOut).keys

    def create_key(
        self,
        name: str,
        *,
        role: str = "reader",
        collections: Sequence[str] | None = None,
        expires_at: datetime | None = None,
    ) -> NewKeyOut:
        """Create a key and return it with its secret, which can't be read again."""
        body = _build(KeyIn, name=name, role=role, collections=collections, expires_at=expires_at)
        return self._call("POST", "/v1/keys", NewKeyOut, body=body)

    def rotate_key(self, key_id: str, *, grace_s: int = 0) -> NewKeyOut:
        """Replace a key; the old one ends after the time of grace."""
        body = _build(RotateKeyIn, grace_s=grace_s)
        return self._call("POST", f"/v1/keys/{quote(key_id, safe='')}/rotate", NewKeyOut, body=body)

    def revoke_key(self, key_id: str) -> None:
        """End a key."""
        self._send("DELETE", f"/v1/keys/{quote(key_id, safe='')}")

    def iter_audit(self) -> Iterator[AuditEventOut]:
        """Yield the events of the audit log, oldest first."""
        after = 0
        while True:
            page = self._call("GET", "/v1/audit", AuditOut, params={"after": str(after), "limit": "500"})
            yield from page.events
            if page.next_after is None:
                return
            after = page.next_after

    # -- faults
    def look_up_fault(
        self, code: str, *, collection: str = "default", limit: int | None = None
    ) -> FaultLookUpOut:
        """Return what the documents say of a code; the error's code is `code_unknown` if they don't."""
        path = f"{_collection(collection)}/faults/{quote(code, safe='')}"
        params = {"limit": str(limit)} if limit is not None else None
        return self._call("GET", path, FaultLookUpOut, params=params)

    def search_faults(
        self, symptom: str, *, collection: str = "default", top_k: int | None = None
    ) -> FaultSearchOut:
        """Return the faults that fit a symptom in words; none is no error."""
        body = _build(FaultSearchIn, symptom=symptom, top_k=top_k)
        path = f"{_collection(collection)}/faults/search"
        return self._call("POST", path, FaultSearchOut, body=body, timeout_s=_SLOW_S)

    # -- search and answers
    def search(
        self,
        query: str,
        *,
        collection: str = "default",
        top_k: int | None = None,
        mode: SearchMode = "hybrid",
        scope: ScopeIn | None = None,
    ) -> SearchOut:
        """Return the best passages without an answer; a mode other than `hybrid` asks one index alone."""
        body = _build(
            SearchIn, query=query, collection=collection, top_k=top_k, mode=mode, scope=scope or ScopeIn()
        )
        return self._call("POST", "/v1/search", SearchOut, body=body, timeout_s=_SLOW_S)

    def explain(
        self,
        question: str,
        *,
        document: str,
        page: int | None = None,
        collection: str = "default",
        top_k: int | None = None,
    ) -> ExplainOut:
        """Return what became of a document or page for a question."""
        body = _build(ExplainIn, question=question, document=document, page=page, top_k=top_k)
        path = f"{_collection(collection)}/explain"
        return self._call("POST", path, ExplainOut, body=body, timeout_s=_SLOW_S)

    def get_calibration(self, collection: str) -> CalibrationOut:
        """Return the threshold of a collection and what has changed since it was measured."""
        return self._call("GET", f"{_collection(collection)}/calibration", CalibrationOut)

    def set_calibration(self, collection: str, calibration: CalibrationIn) -> CalibrationOut:
        """Give a collection a threshold of its own."""
        path = f"{_collection(collection)}/calibration"
        return self._call("PUT", path, CalibrationOut, body=calibration)

    def delete_calibration(self, collection: str) -> None:
        """Let the threshold of the settings hold again."""
        self._send("DELETE", f"{_collection(collection)}/calibration")

    def ask(
        self,
        question: str,
        *,
        collection: str = "default",
        top_k: int | None = None,
        max_tokens: int | None = None,
        preset: PresetName = DEFAULT_PRESET,
        think: bool = False,
        scope: ScopeIn | None = None,
        history: Sequence[MessageIn] = (),
    ) -> AnswerOut:
        """Return the whole answer."""
        body = _build(
            AskIn,
            question=question,
            collection=collection,
            top_k=top_k,
            max_tokens=max_tokens,
            preset=preset,
            think=think,
            scope=scope or ScopeIn(),
            history=list(history),
        )
        return self._call("POST", "/v1/ask", AnswerOut, body=body, timeout_s=_SLOW_S)

    def stream(
        self,
        question: str,
        *,
        collection: str = "default",
        top_k: int | None = None,
        max_tokens: int | None = None,
        preset: PresetName = DEFAULT_PRESET,
        think: bool = False,
        scope: ScopeIn | None = None,
        history: Sequence[MessageIn] = (),
    ) -> Iterator[AskEvent]:
        """Yield the answer's text as it is written, then exactly one `AskFinished`."""
        body = _build(
            AskIn,
            question=question,
            collection=collection,
            top_k=top_k,
            max_tokens=max_tokens,
            preset=preset,
            think=think,
            history=list(history),
            stream=True,
            scope=scope or ScopeIn(),
        )
        with self._translating():
            request = self._http.build_request(
                "POST",
                "/v1/ask",
                json=body.model_dump(mode="json"),
                headers={"Accept": "text/event-stream"},
                timeout=httpx.Timeout(_SLOW_S, connect=5.0),
            )
            reply = self._http.send(request, stream=True)
            try:
                if reply.status_code != httpx.codes.OK:
                    reply.read()
                    self._raise_for(reply)
                yield from self._read_answer(reply)
            finally:
                reply.close()

    def get_receipt(self, answer_id: str) -> ReceiptOut:
        """Return what an answer was made from."""
        return self._call("GET", f"/v1/answers/{quote(answer_id, safe='')}", ReceiptOut)

    def delete_receipt(self, answer_id: str) -> None:
        """Delete what is kept of an answer."""
        self._send("DELETE", f"/v1/answers/{quote(answer_id, safe='')}")

    def replay(self, answer_id: str) -> ReplayOut:
        """Ask the same again; return what differs."""
        return self._call(
            "POST", f"/v1/answers/{quote(answer_id, safe='')}/replay", ReplayOut, timeout_s=_SLOW_S
        )

    def _read_answer(self, reply: httpx.Response) -> Iterator[AskEvent]:
        for event, data in iter_server_sent_events(reply.iter_lines()):
            try:
                if event == "delta":
                    yield AskDelta(_TextIn.model_validate_json(data).text)
                elif event == "answer":
                    yield AskFinished(AnswerOut.model_validate_json(data))
                    return
                elif event == "error":
                    raise _to_error(ErrorOut.model_validate_json(data), reply.status_code)
            except ValidationError as error:
                raise UnexpectedReplyError(
                    self._url,
                    status=reply.status_code,
                    detail=f"event {event!r}: {error.error_count()} errors",
                ) from error
        raise ClientError(
            "the answer broke off before its end",
            code="stream_interrupted",
            next_step="Ask again; `kb status` shows whether the service is up.",
        )

    # -- one call
    def _call(
        self,
        method: str,
        path: str,
        shape: type[_Model],
        *,
        body: BaseModel | None = None,
        params: Mapping[str, str | list[str]] | None = None,
        accepted: tuple[int, ...] = (),
        timeout_s: float | None = None,
    ) -> _Model:
        reply = self._send(method, path, body=body, params=params, accepted=accepted, timeout_s=timeout_s)
        return self._parse(reply, shape)

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        params: Mapping[str, str | list[str]] | None = None,
        form: dict[str, str] | None = None,
        files: Sequence[tuple[str, tuple[str, io.BufferedReader | bytes, str]]] | None = None,
        accepted: tuple[int, ...] = (),
        timeout_s: float | None = None,
    ) -> httpx.Response:
        options: dict[str, Any] = {}
        if timeout_s is not None:
            options["timeout"] = httpx.Timeout(timeout_s, connect=5.0)
        with self._translating():
            reply = self._http.request(
                method,
                path,
                json=None if body is None else body.model_dump(mode="json"),
                params=params,
                data=form,
                files=files,
                **options,
            )
        if not reply.is_success and reply.status_code not in accepted:
            self._raise_for(reply)
        return reply

    def _parse(self, reply: httpx.Response, shape: type[_Model]) -> _Model:
        try:
            return shape.model_validate_json(reply.content)
        except ValidationError as error:
            raise UnexpectedReplyError(
                self._url, status=reply.status_code, detail=f"no {shape.__name__}"
            ) from error

    def _raise_for(self, reply: httpx.Response) -> None:
        try:
            body = ErrorOut.model_validate_json(reply.content)
        except ValidationError as error:
            raise UnexpectedReplyError(
                self._url, status=reply.status_code, detail=reply.reason_phrase or "no JSON"
            ) from error
        raise _to_error(body, reply.status_code)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise ServiceUnreachableError(self._url) from error
        except httpx.TimeoutException as error:
            raise ServiceUnreachableError(self._url, reason="no reply in time") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ServiceUnreachableError(self._url, reason=f"not a URL: {error}") from error
        except httpx.TransportError as error:
            raise ServiceUnreachableError(self._url, reason="the connection broke") from error


def iter_server_sent_events(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (event, data) of a `text/event-stream` (WHATWG HTML, section 9.2); comments are skipped."""
    event, data = "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)


def _build(model: type[_Model], **fields: object) -> _Model:
    """Return the body of a request; raises `ClientError` for what the API would refuse."""
    try:
        return model(**fields)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, item['loc']))}: {item['msg'][:1].lower()}{item['msg'][1:]}"
            for item in error.errors(include_url=False, include_input=False)
        ]
        raise ClientError(
            f"wrong request: {'; '.join(wrong)}",
            code="invalid_request",
            next_step="Correct it, then try again.",
        ) from None


class _TextIn(BaseModel):
    text: str


class _CountingReader(io.BufferedReader):
    """A file that reports the bytes read from it."""

    def __init__(self, path: Path, on_bytes: ByteProgress) -> None:
        super().__init__(io.FileIO(path, "rb"))
        self._on_bytes = on_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self._on_bytes(len(piece))
        return piece


def _to_error(body: ErrorOut, status: int) -> ClientError:
    error = body.error
    return ClientError(
        error.message,
        code=error.code,
        next_step=error.next_step,
        status=status,
        request_id=error.request_id,
        suggestions=error.suggestions,
    )


def _collection(name: str) -> str:
    return f"/v1/collections/{quote(name, safe='')}"


def _document(collection: str, document_id: str) -> str:
    return f"{_collection(collection)}/documents/{quote(document_id, safe='')}"
