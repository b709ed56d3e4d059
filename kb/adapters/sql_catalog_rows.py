"""Catalog rows to values and back. Structured parts are compact JSON lists, one per value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from kb.types import (
    Attempt,
    Block,
    BlockKind,
    Box,
    Calibration,
    Chunk,
    Document,
    DocumentState,
    IndexParts,
    Job,
    JobState,
    Line,
    Page,
    PageQuality,
    Problem,
    Span,
    TextSource,
)

Row = sa.RowMapping

# PostgreSQL stores neither NUL nor half of a surrogate pair. Replaced one by one: spans count characters.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return `text`, of equal length, with U+FFFD for characters that no database stores."""
    return _UNSTORABLE.sub("\ufffd", text)


def read_document(row: Row) -> Document:
    """Return the document of a row of `documents`."""
    return Document(
        id=row["id"],
        collection_id=row["collection_id"],
        name=row["name"],
        sha256=row["sha256"],
        size_bytes=row["size_bytes"],
        generation=row["generation"],
        state=DocumentState(row["state"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        media_type=row["media_type"],
        title=row["title"],
        stage=row["stage"],
        pages_done=row["pages_done"],
        page_count=row["page_count"],
        chunk_count=row["chunk_count"],
        attempt=row["attempt"],
        job_id=row["job_id"],
        error=read_problem(row["error"]),
        warnings=tuple(Problem(*item) for item in row["warnings"]),
        finished_at=row["finished_at"],
        parent_id=row["parent_id"],
        tags=tuple(row["tags"] or ()),
    )


def read_job(row: Row) -> Job:
    """Return the job of a row of `jobs`."""
    return Job(
        id=row["id"],
        collection_id=row["collection_id"],
        document_id=row["document_id"],
        generation=row["generation"],
        state=JobState(row["state"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        attempts=read_attempts(row["attempts"]),
        cancel_requested=row["cancel_requested"],
    )


def write_calibration(calibration: Calibration) -> dict[str, Any]:
    """Return the JSON form of a calibration."""
    return asdict(calibration) | {"measured_at": calibration.measured_at.isoformat()}


def read_calibration(item: Mapping[str, Any] | None) -> Calibration | None:
    """Return the calibration of its JSON form."""
    if item is None:
        return None
    parts = IndexParts(**item["parts"])
    measured_at = datetime.fromisoformat(item["measured_at"])
    return Calibration(**{**item, "parts": parts, "measured_at": measured_at})


def write_problem(problem: Problem) -> list[str]:
    """Return the JSON form of a problem."""
    return [clean_text(problem.code), clean_text(problem.message), clean_text(problem.next_step)]


def read_problem(item: list[str] | None) -> Problem | None:
    """Return the problem of its JSON form."""
    return Problem(*item) if item is not None else None


def write_attempts(attempts: Sequence[Attempt]) -> list[list[Any]]:
    """Return the JSON form of a job's attempts."""
    return [
        [
            attempt.number,
            clean_text(attempt.worker),
            attempt.started_at.isoformat(),
            attempt.finished_at.isoformat() if attempt.finished_at else None,
            write_problem(attempt.error) if attempt.error else None,
            attempt.rest_s,
        ]
        for attempt in attempts
    ]


def read_attempts(items: list[list[Any]]) -> tuple[Attempt, ...]:
    """Return the attempts of their JSON form; an older one has a time, or nothing, in place of the rest."""
    return tuple(
        Attempt(
            number=number,
            worker=worker,
            started_at=datetime.fromisoformat(started),
            finished_at=datetime.fromisoformat(finished) if finished else None,
            error=read_problem(error),
            rest_s=rest[0] if rest and isinstance(rest[0], int | float) else None,
        )
        for number, worker, started, finished, error, *rest in items
    )


def write_page(page: Page) -> dict[str, Any]:
    """Return a page's columns, without its key."""
    quality = page.quality
    return {
        "page_number": page.page_number,
        "text": clean_text(page.text),
        "source": page.source.value,
        "label": None if page.label is None else clean_text(page.label),
        "width": page.width,
        "height": page.height,
        "blocks": [
            [
                block.kind.value,
                block.char_start,
                block.char_end,
                block.level,
                _write_box(block.box),
                None if block.record is None else _write_record(block.record),
                block.table_index,
            ]
            for block in page.blocks
        ],
        "lines": [[line.char_start, line.char_end, _write_box(line.box)] for line in page.lines],
        "quality": [
            quality.undecodable_share,
            quality.word_count,
            quality.table_count,
            quality.ocr_confidence,
            [clean_text(warning) for warning in quality.warnings],
        ],
    }


def read_page(row: Row) -> Page:
    """Return the page of a row of `pages`."""
    undecodable_share, word_count, table_count, ocr_confidence, warnings = row["quality"]
    return Page(
        page_number=row["page_number"],
        text=row["text"],
        source=TextSource(row["source"]),
        label=row["label"],
        width=row["width"],
        height=row["height"],
        blocks=tuple(
            Block(BlockKind(kind), start, end, level, _read_box(box), record, table_index)
            for kind, start, end, level, box, record, table_index in row["blocks"]
        ),
        lines=tuple(Line(start, end, _read_box(box)) for start, end, box in row["lines"]),
        quality=PageQuality(undecodable_share, word_count, table_count, ocr_confidence, tuple(warnings)),
    )


def write_chunk(chunk: Chunk) -> dict[str, Any]:
    """Return a chunk's columns."""
    return {
        "id": chunk.id,
        "document_id": chunk.document_id,
        "generation": chunk.generation,
        "position": chunk.index,
        "text": clean_text(chunk.text),
        "context": clean_text(chunk.context),
        "heading_path": [clean_text(heading) for heading in chunk.heading_path],
        "spans": [[span.page_number, span.char_start, span.char_end] for span in chunk.spans],
        "records": [_write_record(record) for record in chunk.records],
        "language": chunk.language,
        "token_count": chunk.token_count,
    }


def read_chunk(row: Row) -> Chunk:
    """Return the chunk of a row of `chunks`."""
    return Chunk(
        id=row["id"],
        document_id=row["document_id"],
        generation=row["generation"],
        index=row["position"],
        text=row["text"],
        spans=tuple(Span(*item) for item in row["spans"]),
        context=row["context"],
        heading_path=tuple(row["heading_path"]),
        records=tuple(row["records"]),
        language=row["language"],
        token_count=row["token_count"],
    )


def write_metadata(values: Mapping[str, str]) -> dict[str, str]:
    """Return the JSON form of a file's own metadata."""
    return _write_record(values)


def _write_record(record: Mapping[str, str]) -> dict[str, str]:
    return {clean_text(name): clean_text(value) for name, value in record.items()}


def _write_box(box: Box | None) -> list[float] | None:
    return None if box is None else [box.x0, box.y0, box.x1, box.y1]


def _read_box(item: list[float] | None) -> Box | None:
    return None if item is None else Box(*item)
