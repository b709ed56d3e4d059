"""Values of the core to the shapes on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel

from kb.access import ApiKey, AuditEvent
from kb.calibration import list_changes
from kb.explaining import Explanation
from kb.receipts import Replay
from kb.schemas import (
    AnswerOut,
    AttemptOut,
    AuditEventOut,
    BoxOut,
    CalibrationOut,
    CitationOut,
    CollectionOut,
    ConflictingValueOut,
    DependencyOut,
    DocumentDetailOut,
    DocumentOut,
    ExplainedChunkOut,
    ExplainOut,
    FaultOut,
    JobOut,
    KeyOut,
    LineOut,
    PageOut,
    PageQualityOut,
    PassageOut,
    ProblemOut,
    ReceiptOut,
    RefusalOut,
    ReplayOut,
    ScopeIn,
    SpanOut,
    TableOut,
    UsageOut,
)
from kb.types import (
    Answer,
    Block,
    BlockKind,
    Calibration,
    Citation,
    Collection,
    DependencyStatus,
    Document,
    Fault,
    IndexParts,
    Job,
    Page,
    Passage,
    Problem,
    Receipt,
    Refusal,
    Scope,
)

_Shape = TypeVar("_Shape", bound=BaseModel)


def build_problem(problem: Problem) -> ProblemOut:
    """Return an error or warning."""
    return _copy(ProblemOut, problem)


def build_collection(collection: Collection) -> CollectionOut:
    """Return a collection with its counts."""
    return _copy(CollectionOut, collection)


def build_document(document: Document, *, collection: str) -> DocumentOut:
    """Return a document; `collection` is the collection's name."""
    return DocumentOut(
        id=document.id,
        collection=collection,
        name=document.name,
        title=document.title,
        media_type=document.media_type,
        size_bytes=document.size_bytes,
        sha256=document.sha256,
        state=document.state.value,
        stage=document.stage,
        pages_done=document.pages_done,
        page_count=document.page_count,
        chunk_count=document.chunk_count,
        attempt=document.attempt,
        job_id=document.job_id,
        error=build_problem(document.error) if document.error else None,
        warnings=[build_problem(warning) for warning in document.warnings],
        created_at=document.created_at,
        updated_at=document.updated_at,
        finished_at=document.finished_at,
        parent_id=document.parent_id,
        tags=list(document.tags),
    )


def build_document_detail(document: Document, pages: Iterable[Page], *, collection: str) -> DocumentDetailOut:
    """Return a document with the quality of each of its pages."""
    return DocumentDetailOut(
        **dict(build_document(document, collection=collection)),
        pages=[build_page_quality(page) for page in pages],
    )


def build_page_quality(page: Page) -> PageQualityOut:
    """Return what was measured while the page was read."""
    quality = page.quality
    return PageQualityOut(
        page_number=page.page_number,
        source=page.source.value,
        char_count=len(page.text),
        word_count=quality.word_count,
        table_count=quality.table_count,
        undecodable_share=quality.undecodable_share,
        ocr_confidence=quality.ocr_confidence,
        warnings=list(quality.warnings),
    )


def build_page(page: Page, *, document_id: str) -> PageOut:
    """Return the stored text of a page with its lines and tables."""
    return PageOut(
        document_id=document_id,
        page_number=page.page_number,
        label=page.label,
        text=page.text,
        source=page.source.value,
        width=page.width,
        height=page.height,
        quality=build_page_quality(page),
        lines=[
            LineOut(
                text=page.text[line.char_start : line.char_end],
                char_start=line.char_start,
                char_end=line.char_end,
                box=_copy(BoxOut, line.box) if line.box else None,
            )
            for line in page.lines
        ],
        tables=_build_tables(page.blocks),
    )


def _build_tables(blocks: Iterable[Block]) -> list[TableOut]:
    tables: dict[int, TableOut] = {}
    for block in blocks:
        if block.kind is BlockKind.TABLE_ROW and block.record is not None:
            number = block.table_index or 0
            table = tables.setdefault(number, TableOut(table_index=number, records=[]))
            table.records.append(dict(block.record))
    return list(tables.values())


def build_job(
    job: Job, document: Document, *, collection: str, stalled_reason: str | None, eta_s: float | None
) -> JobOut:
    """Return a job with the progress of its document."""
    return JobOut(
        id=job.id,
        collection=collection,
        document_id=document.id,
        document_name=document.name,
        state=job.state.value,
        document_state=document.state.value,
        stage=document.stage,
        pages_done=document.pages_done,
        page_count=document.page_count,
        cancel_requested=job.cancel_requested,
        stalled_reason=stalled_reason,
        eta_s=eta_s,
        attempts=[_copy(AttemptOut, attempt) for attempt in job.attempts],
        created_at=job.created_at,
        updated_at=job.updated_at,
    )


def build_passage(passage: Passage) -> PassageOut:
    """Return a retrieved chunk with its scores."""
    chunk = passage.chunk
    return PassageOut(
        rank=passage.rank,
        score=passage.score,
        scores=dict(passage.scores),
        chunk_id=chunk.id,
        document_id=chunk.document_id,
        document_name=passage.document_name,
        page_start=chunk.page_start,
        page_end=chunk.page_end,
        spans=[_copy(SpanOut, span) for span in chunk.spans],
        heading_path=list(chunk.heading_path),
        text=chunk.text,
        records=[dict(record) for record in chunk.records],
    )


def build_fault(fault: Fault) -> FaultOut:
    """Return a fault's fields with the place where they stand."""
    return _copy(FaultOut, fault)


def build_citation(citation: Citation) -> CitationOut:
    """Return a resolved marker."""
    return _copy(CitationOut, citation)


def build_usage(answer: Answer) -> UsageOut:
    """Return the tokens of an answer as the generator counted them."""
    return UsageOut(
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        total_tokens=answer.prompt_tokens + answer.completion_tokens,
    )


def build_answer(answer: Answer, *, collection: str) -> AnswerOut:
    """Return an answer or a refusal."""
    return AnswerOut(
        id=answer.id,
        question=answer.question,
        query=answer.query or answer.question,
        collection=collection,
        answer=answer.text,
        refused=answer.refused,
        refusal=_build_refusal(answer.refusal) if answer.refusal else None,
        mode=answer.mode,
        language=answer.language,
        citations=[build_citation(citation) for citation in answer.citations],
        passages=[build_passage(passage) for passage in answer.passages],
        notices=list(answer.notices),
        conflict=[_copy(ConflictingValueOut, value) for value in answer.conflict],
        unsupported=list(answer.unsupported),
        flags=list(answer.flags),
        model=answer.model,
        finish_reason=answer.finish_reason,
        usage=build_usage(answer),
    )


def build_receipt(receipt: Receipt) -> ReceiptOut:
    """Return what an answer was made from."""
    return _copy(ReceiptOut, receipt)


def build_replay(replay: Replay) -> ReplayOut:
    """Return two receipts and what differs."""
    return _copy(ReplayOut, replay)


def _build_refusal(refusal: Refusal) -> RefusalOut:
    return RefusalOut(
        reason=refusal.reason.value, nearest=[build_passage(passage) for passage in refusal.nearest]
    )


def build_dependency(status: DependencyStatus) -> DependencyOut:
    """Return the state of one dependency."""
    return _copy(DependencyOut, status)


def build_key(key: ApiKey, *, now: datetime) -> KeyOut:
    """Return an API key without its secret."""
    shown = {name: getattr(key, name) for name in KeyOut.model_fields if name != "active"}
    return KeyOut.model_validate({**shown, "active": key.is_active(now)})


def build_audit_event(event: AuditEvent) -> AuditEventOut:
    """Return an event of the audit log."""
    return _copy(AuditEventOut, event)


def _copy(shape: type[_Shape], value: object) -> _Shape:
    """Return the shape filled from the value's attributes, which have the same names."""
    return shape.model_validate(value, from_attributes=True)


def read_scope(scope: ScopeIn) -> Scope:
    """Return which passages count; a time without a zone is UTC."""
    return Scope(
        documents=tuple(scope.documents),
        tags=tuple(scope.tags),
        language=scope.language or "",
        uploaded_from=_read_time(scope.uploaded_from),
        uploaded_before=_read_time(scope.uploaded_before),
    )


def _read_time(value: datetime | None) -> datetime | None:
    return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def build_explanation(explanation: Explanation, *, question: str, collection: str) -> ExplainOut:
    """Return what became of a document or page."""
    found = explanation.retrieval
    return ExplainOut(
        question=question,
        collection=collection,
        document_id=explanation.document.id,
        document_name=explanation.document.name,
        document_state=explanation.document.state.value,
        fate=explanation.fate.value,
        evidence=found.evidence,
        threshold=found.threshold,
        unknown_codes=list(found.unknown_codes),
        chunks=[
            ExplainedChunkOut(
                chunk_id=item.chunk.id,
                page_start=item.chunk.page_start,
                page_end=item.chunk.page_end,
                text=item.chunk.text,
                fate=item.fate.value,
                alone=dict(item.alone),
                ranks=dict(item.ranks),
                scores=dict(item.scores),
                repeated_by=item.repeated_by,
            )
            for item in explanation.chunks
        ],
    )


def build_calibration(calibration: Calibration, *, parts: IndexParts, collection: str) -> CalibrationOut:
    """Return a calibration, compared with the parts that are in use."""
    return CalibrationOut(
        collection=collection,
        threshold=calibration.threshold,
        target_false_answers=calibration.target_false_answers,
        false_answers=calibration.false_answers,
        false_refusals=calibration.false_refusals,
        answerable=calibration.answerable,
        unanswerable=calibration.unanswerable,
        embedder=calibration.parts.embedder,
        reranker=calibration.parts.reranker,
        chunker=calibration.parts.chunker,
        measured_at=calibration.measured_at,
        changed=list_changes(calibration, parts),
    )
