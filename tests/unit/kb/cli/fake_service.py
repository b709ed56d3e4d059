"""A small service with the API's shapes, for tests of the client and the commands."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.datastructures import UploadFile

from kb.schemas import (
    AnswerOut,
    AskIn,
    AttemptOut,
    BoxOut,
    CitationOut,
    CollectionIn,
    CollectionOut,
    CollectionsOut,
    DependencyOut,
    DocumentDetailOut,
    DocumentOut,
    DocumentsOut,
    ErrorDetail,
    ErrorOut,
    FaultLookUpOut,
    FaultOut,
    FaultSearchIn,
    FaultSearchOut,
    JobOut,
    JobsOut,
    LiveOut,
    PageOut,
    PageQualityOut,
    PassageOut,
    ProblemOut,
    ReadyOut,
    RefusalOut,
    SearchIn,
    SearchOut,
    SpanOut,
    UploadOut,
    UploadResultOut,
    UsageOut,
)

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
API_KEY = "a-key-of-the-fake-service"
PAGE_TEXT = "E-0471 液压站压力过低。\n检查吸油滤芯，压力应为 17.5 MPa。"
QUOTE = "检查吸油滤芯，压力应为 17.5 MPa。"
ENGLISH_PAGE = "F30001 overcurrent: check the motor cable for an earth fault."
ANSWERS = {
    "zh": f"E-0471 表示压力过低：{QUOTE}[1]",
    "en": "F30001 means overcurrent; check the motor cable for an earth fault [1].",
}
STAGES = ("queued", "parsing", "embedding")


class FakeError(Exception):
    """An error with the API's shape."""

    def __init__(
        self, status: int, code: str, message: str, next_step: str = "", suggestions: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorOut(
            error=ErrorDetail(
                code=code,
                message=message,
                next_step=next_step,
                request_id="r-1",
                suggestions=list(suggestions),
            )
        )


@dataclass
class State:
    """What the service holds; tests change it to play situations."""

    collections: dict[str, dict[str, DocumentOut]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    dependencies: list[DependencyOut] = field(
        default_factory=lambda: [
            DependencyOut(name="catalog", ok=True, required=True, detail="sqlite 3.46"),
            DependencyOut(name="chroma", ok=True, required=True, detail="1.5.9"),
            DependencyOut(name="workers", ok=True, required=False, detail="1 worker"),
        ]
    )
    api_key: str | None = None
    stalled_reason: str | None = None
    break_stream: bool = False
    stuck_jobs: bool = False
    eta_s: float | None = None
    page_text: str = PAGE_TEXT
    retries: list[str] = field(default_factory=list)
    deletions: list[tuple[str, bool]] = field(default_factory=list)
    looked: int = 0
    modes: list[str] = field(default_factory=list)
    search_error: bool = False
    last_page: int = 9
    attached: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return all(item.ok for item in self.dependencies if item.required)

    def documents(self, collection: str) -> dict[str, DocumentOut]:
        if collection not in self.collections:
            raise FakeError(
                404, "collection_not_found", f"no collection is named {collection!r}", "Create it."
            )
        return self.collections[collection]

    def find_job(self, job_id: str) -> DocumentOut:
        for documents in self.collections.values():
            for document in documents.values():
                if document.job_id == job_id:
                    return document
        raise FakeError(404, "job_not_found", f"no job has the id {job_id!r}", "List them.")


def make_document(collection: str, name: str, body: bytes, *, state: str = "queued") -> DocumentOut:
    """Return a document as it is right after its upload."""
    digest = hashlib.sha256(collection.encode() + body).hexdigest()
    return DocumentOut(
        id=f"d-{digest[:8]}",
        collection=collection,
        name=name,
        title="",
        media_type="application/pdf",
        size_bytes=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        state=state,
        stage="",
        pages_done=0,
        page_count=0,
        chunk_count=0,
        attempt=0,
        job_id=f"j-{digest[:8]}",
        error=None,
        warnings=[],
        created_at=NOW,
        updated_at=NOW,
        finished_at=None,
    )


def make_passage(rank: int, name: str, page: int, text: str) -> PassageOut:
    """Return a passage on one page."""
    return PassageOut(
        rank=rank,
        score=0.03 / (rank + 1),
        scores={"dense": 0.81, "lexical": 7.25},
        chunk_id=f"d-1-g1-{rank:05d}",
        document_id="d-1",
        document_name=name,
        page_start=page,
        page_end=page,
        spans=[SpanOut(page_number=page, char_start=0, char_end=len(text))],
        heading_path=["故障处理", "E-0471"],
        text=text,
        records=[],
    )


def make_fault(*, kind: Literal["row", "section", "mention"] = "row", score: float | None = None) -> FaultOut:
    """Return a Chinese fault; a mention is an English sentence."""
    record = {"故障代码": "E-0471", "现象": "压力低", "原因": "漏气", "处理": "补氮气", "介质": "氮"}
    is_mention = kind == "mention"
    quote = "Alarm E-0471 came twice." if is_mention else " | ".join(record.values())
    return FaultOut(
        kind=kind,
        code="E-0471",
        description="" if is_mention else "压力低",
        cause="" if is_mention else "漏气",
        remedy="" if is_mention else "补氮气",
        record={} if is_mention else record,
        document_id="d-1",
        document_name="shift_notes.md" if is_mention else "press_manual_zh.pdf",
        page_number=1 if is_mention else 12,
        box=None if is_mention else BoxOut(x0=1, y0=2, x1=3, y1=4),
        quote=quote,
        char_start=0,
        char_end=len(quote),
        chunk_id="d-1-g1-00000",
        heading_path=[],
        score=score,
    )


def advance(document: DocumentOut, looks: int) -> DocumentOut:
    """Return the document after it was looked at so many times."""
    if looks < len(STAGES):
        stage = STAGES[looks]
        return document.model_copy(
            update={"state": stage, "stage": stage, "page_count": 4 if looks else 0, "pages_done": looks}
        )
    if "broken" in document.name:
        problem = ProblemOut(code="damaged_file", message="the file is cut off", next_step="Save it again.")
        return document.model_copy(update={"state": "failed", "stage": "", "error": problem, "attempt": 1})
    return document.model_copy(
        update={
            "state": "ready",
            "stage": "",
            "page_count": 4,
            "pages_done": 4,
            "chunk_count": 9,
            "attempt": 1,
            "finished_at": NOW,
        }
    )


def make_quality(page: int) -> PageQualityOut:
    """Return a line of the ledger."""
    return PageQualityOut(
        page_number=page,
        source="text" if page == 1 else "ocr",
        char_count=400,
        word_count=120,
        table_count=page - 1,
        undecodable_share=0.0 if page == 1 else 0.012,
        ocr_confidence=None if page == 1 else 0.93,
        warnings=[] if page == 1 else ["low_contrast"],
    )


def make_job(document: DocumentOut, state: State) -> JobOut:
    """Return the document's job."""
    job_state = {"ready": "succeeded", "failed": "failed", "queued": "queued", "cancelled": "cancelled"}.get(
        document.state, "running"
    )
    attempts = [
        AttemptOut(number=1, worker="worker@press-3", started_at=NOW, finished_at=NOW, error=document.error)
    ]
    return JobOut(
        id=document.job_id,
        collection=document.collection,
        document_id=document.id,
        document_name=document.name,
        state=job_state,
        document_state=document.state,
        stage=document.stage,
        pages_done=document.pages_done,
        page_count=document.page_count,
        cancel_requested=document.state == "parsing" and document.id in state.retries,
        stalled_reason=state.stalled_reason if document.state == "queued" else None,
        eta_s=state.eta_s if job_state == "running" else None,
        attempts=attempts if document.attempt else [],
        created_at=NOW,
        updated_at=NOW,
    )


def make_answer(asked: AskIn) -> AnswerOut:
    """Return a refusal for questions about the moon, else an answer with one citation."""
    chinese = any("\u4e00" <= char <= "\u9fff" for char in asked.question)
    language = "zh" if chinese else "en"
    refused = "moon" in asked.question or "月球" in asked.question
    page_text, name = (PAGE_TEXT, "press_manual_zh.pdf") if chinese else (ENGLISH_PAGE, "drive_manual_en.pdf")
    quote = QUOTE if chinese else ENGLISH_PAGE
    start = page_text.index(quote)
    nearest = [make_passage(0, name, 9, page_text)]
    return AnswerOut(
        id="a-1",
        question=asked.question,
        collection=asked.collection,
        answer=("文档中没有说明。" if chinese else "The documents do not say.")
        if refused
        else ANSWERS[language],
        refused=refused,
        refusal=RefusalOut(reason="below_threshold", nearest=nearest) if refused else None,
        mode="refused" if refused else "extractive",
        language=language,
        citations=[]
        if refused
        else [
            CitationOut(
                number=1,
                document_id="d-1",
                document_name=name,
                page_number=9,
                quote=quote,
                char_start=start,
                char_end=start + len(quote),
                chunk_id="d-1-g1-00000",
                heading_path=[],
            )
        ],
        passages=nearest,
        notices=[] if refused else ["The generator is down; these are quotes."],
        model="extractive",
        finish_reason="length" if "long" in asked.question else "stop",
        usage=UsageOut(prompt_tokens=10, completion_tokens=5, total_tokens=15),
    )


def create_app(state: State) -> FastAPI:
    """Return the service."""
    app = FastAPI()

    @app.exception_handler(FakeError)
    def answer_error(_request: Request, error: FakeError) -> JSONResponse:
        return JSONResponse(error.body.model_dump(), status_code=error.status)

    @app.middleware("http")
    async def check_key(request: Request, call_next: Any) -> Any:
        key = request.headers.get("authorization")
        if state.api_key and request.url.path.startswith("/v1") and key != f"Bearer {state.api_key}":
            error = FakeError(401, "invalid_api_key", "the API key is missing or wrong", "Set KB_API_KEY.")
            return JSONResponse(error.body.model_dump(), status_code=401)
        return await call_next(request)

    @app.get("/health/live")
    def live() -> LiveOut:
        return LiveOut(version="0.1.0")

    @app.get("/health/ready")
    def ready() -> JSONResponse:
        body = ReadyOut(ready=state.ready, dependencies=state.dependencies)
        return JSONResponse(body.model_dump(), status_code=200 if state.ready else 503)

    def describe(name: str) -> CollectionOut:
        documents = state.documents(name)
        chunks = sum(document.chunk_count for document in documents.values())
        return CollectionOut(
            id=f"c-{name}",
            name=name,
            created_at=NOW,
            document_count=len(documents),
            chunk_count=chunks,
            fingerprint="",
        )

    @app.get("/v1/collections")
    def list_collections() -> CollectionsOut:
        return CollectionsOut(collections=[describe(name) for name in sorted(state.collections)])

    @app.post("/v1/collections", status_code=201)
    def create_collection(body: CollectionIn) -> CollectionOut:
        if body.name in state.collections:
            raise FakeError(409, "collection_exists", f"a collection named {body.name!r} already exists")
        state.collections[body.name] = {}
        return describe(body.name)

    @app.get("/v1/collections/{name}")
    def get_collection(name: str) -> CollectionOut:
        return describe(name)

    @app.delete("/v1/collections/{name}", status_code=204)
    def delete_collection(name: str) -> None:
        state.documents(name)
        del state.collections[name]

    @app.post("/v1/collections/{name}/documents", status_code=202)
    async def upload(name: str, request: Request, force: bool = False) -> UploadOut:
        documents = state.documents(name)
        results = []
        async with request.form() as form:
            first, _ = form.multi_items()[0]
            for file in form.getlist("files"):
                assert isinstance(file, UploadFile)
                if first == "password":
                    state.passwords[file.filename or ""] = str(form["password"])
                results.append(take_in(documents, name, file.filename or "", await file.read(), force=force))
        return UploadOut(results=results)

    def take_in(
        documents: dict[str, DocumentOut], collection: str, name: str, body: bytes, *, force: bool
    ) -> UploadResultOut:
        if b"TOO LARGE" in body:
            raise FakeError(413, "too_large", f"{name!r} is larger than the limit", "Split the file.")
        if name.endswith(".exe"):
            problem = ProblemOut(
                code="unsupported_format", message="no parser reads it", next_step="Save as PDF."
            )
            return UploadResultOut(name=name, document=None, duplicate=False, error=problem)
        document = make_document(collection, name, body)
        known = documents.get(document.id)
        if known is not None and known.state != "failed" and not force:
            return UploadResultOut(name=name, document=known, duplicate=True, error=None)
        state.looks[document.job_id] = 0
        state.bodies[name] = body
        documents[document.id] = document
        return UploadResultOut(name=name, document=document, duplicate=False, error=None)

    @app.get("/v1/collections/{name}/documents")
    def list_documents(
        name: str,
        after: str | None = None,
        wanted: Annotated[str | None, Query(alias="state")] = None,
        parent_id: str | None = None,
        limit: int = 2,
    ) -> DocumentsOut:
        found = sorted(state.documents(name).values(), key=lambda item: (item.name, item.id))
        if wanted:
            found = [item for item in found if item.state == wanted]
        if parent_id:
            found = [item for item in found if item.parent_id == parent_id]
        first = next((i + 1 for i, item in enumerate(found) if item.id == after), 0)
        page = found[first : first + limit]
        more = first + limit < len(found)
        return DocumentsOut(documents=page, next_after=page[-1].id if more else None)

    @app.get("/v1/collections/{name}/documents/{document_id}")
    def get_document(name: str, document_id: str) -> DocumentDetailOut:
        document = state.documents(name).get(document_id)
        if document is None:
            raise FakeError(
                404, "document_not_found", f"no document has the id {document_id!r}", "List them."
            )
        pages = [make_quality(1), make_quality(2)] if document.page_count else []
        return DocumentDetailOut(**document.model_dump(), pages=pages)

    @app.delete("/v1/collections/{name}/documents/{document_id}", status_code=204)
    def delete_document(name: str, document_id: str, keep_attached: bool = False) -> None:
        get_document(name, document_id)
        state.deletions.append((document_id, keep_attached))
        del state.documents(name)[document_id]

    @app.get("/v1/collections/{name}/documents/{document_id}/pages/{number}")
    def get_page(name: str, document_id: str, number: int) -> PageOut:
        if number > state.last_page:
            raise FakeError(404, "page_not_found", f"document {document_id!r} has no page {number}")
        return PageOut(
            document_id=document_id,
            page_number=number,
            label=None,
            text=state.page_text,
            source="text",
            width=595,
            height=842,
            quality=make_quality(1),
            lines=[],
            tables=[],
        )

    @app.get("/v1/jobs")
    def list_jobs(
        collection: str | None = None,
        wanted: Annotated[str | None, Query(alias="state")] = None,
        limit: int = 50,
    ) -> JobsOut:
        jobs = [
            make_job(document, state)
            for name, documents in state.collections.items()
            if collection in (None, name)
            for document in documents.values()
        ]
        return JobsOut(jobs=[job for job in jobs if wanted in (None, job.state)][:limit])

    @app.get("/v1/jobs/{job_id}")
    def get_job(job_id: str) -> JobOut:
        document = state.find_job(job_id)
        state.looked += 1
        if not state.stuck_jobs:
            document = advance(document, state.looks.get(job_id, 0))
            state.looks[job_id] = state.looks.get(job_id, 0) + 1
            state.collections[document.collection][document.id] = document
            if document.state == "ready":
                register_attached(document)
        return make_job(document, state)

    def register_attached(parent: DocumentOut) -> None:
        for name in state.attached.pop(parent.name, ()):
            body = f"{parent.name} {name}".encode()
            child = make_document(parent.collection, f"{parent.name} › {name}", body)
            state.collections[parent.collection][child.id] = child.model_copy(update={"parent_id": parent.id})

    @app.post("/v1/jobs/{job_id}/{verb}")
    def change_job(job_id: str, verb: str) -> JobOut:
        document = state.find_job(job_id)
        if verb == "cancel" and document.state == "ready":
            raise FakeError(409, "job_state_conflict", "the job has ended", "Nothing to do.")
        state.retries.append(document.id)
        changed = document.model_copy(update={"state": "parsing" if verb == "cancel" else "queued"})
        state.collections[document.collection][document.id] = changed
        return make_job(changed, state)

    @app.post("/v1/collections/{name}/faults/search")
    def search_faults(name: str, body: FaultSearchIn) -> FaultSearchOut:
        state.documents(name)
        fits = "nothing" not in body.symptom and "E-0472" not in body.symptom
        return FaultSearchOut(
            symptom=body.symptom,
            collection=name,
            faults=[make_fault(score=0.82)][: body.top_k] if fits else [],
            evidence=0.86 if fits else 0.2,
            unknown_codes=["E-0472"] if "E-0472" in body.symptom else [],
        )

    @app.get("/v1/collections/{name}/faults/{code:path}")
    def look_up_fault(name: str, code: str, limit: int = 20) -> FaultLookUpOut:
        state.documents(name)
        if code not in ("E-0471", "A/7", "rot"):
            raise FakeError(
                404, "code_unknown", f"no document has the code {code!r}", "Other codes: E-0471.", ("E-0471",)
            )
        faults = [make_fault(), make_fault(kind="mention")]
        return FaultLookUpOut(code=code, collection=name, total=2, faults=faults[:limit])

    @app.post("/v1/search")
    def search(body: SearchIn) -> SearchOut:
        documents = state.documents(body.collection)
        state.modes.append(body.mode)
        if state.search_error:
            raise FakeError(503, "vectors_unavailable", "the vector store is down", "Start it.")
        texts = [item for item in documents.values() if item.name.endswith(".txt")]
        passages = [
            make_passage(0, "drive_manual_en.pdf", 3, ENGLISH_PAGE),
            make_passage(1, "press_manual_zh.pdf", 9, PAGE_TEXT),
        ]
        if texts:
            found = [item for item in texts if body.query.encode() in state.bodies[item.name]]
            rest = [item for item in texts if item not in found]
            ranked = [*found, *rest] if body.mode == "hybrid" else [*rest, *found]
            passages = [
                make_passage(rank, item.name, 1, "text").model_copy(update={"document_id": item.id})
                for rank, item in enumerate(ranked)
            ]
        if "nothing" in body.query:
            passages = []
        return SearchOut(
            query=body.query,
            collection=body.collection,
            passages=passages[: body.top_k or 8],
            evidence=0.62 if body.mode == "hybrid" else None,
        )

    @app.post("/v1/ask", response_model=None)
    def ask(body: AskIn) -> AnswerOut | StreamingResponse:
        state.documents(body.collection)
        answer = make_answer(body)
        if not body.stream:
            return answer
        return StreamingResponse(stream_events(answer, state), media_type="text/event-stream")

    return app


def stream_events(answer: AnswerOut, state: State) -> Iterator[str]:
    """Yield the events of an answer, a heartbeat between them."""
    half = len(answer.answer) // 2
    for piece in (answer.answer[:half], answer.answer[half:]):
        yield f"event: delta\ndata: {json.dumps({'text': piece}, ensure_ascii=False)}\n\n"
        yield ": heartbeat\n\n"
        if state.break_stream:
            return
    if "crash" in answer.question:
        body = ErrorOut(error=ErrorDetail(code="runtime_unavailable", message="the runtime went away"))
        yield f"event: error\ndata: {body.model_dump_json()}\n\n"
        return
    yield f"event: answer\ndata: {answer.model_dump_json()}\n\n"


@contextmanager
def serve(app: FastAPI) -> Iterator[str]:
    """Run the app on a free port in a thread; yield its URL."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none"))
    started = threading.Event()
    original = server.startup

    async def startup(sockets: Any = None) -> None:
        await original(sockets)
        started.set()

    server.startup = startup  # type: ignore[method-assign]  # uvicorn has no hook that says "listening"
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(20)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
