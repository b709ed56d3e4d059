"""Statements of the catalog on jobs; each function runs in its caller's transaction.

A document shows the state of its newest job. A job that was superseded by a newer one of the same
document ends by itself without touching the document.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from kb.adapters.sql_catalog_collections import take_generation
from kb.adapters.sql_catalog_garbage import (
    add_garbage,
    document_key,
    is_live_key,
    release_expired_garbage,
)
from kb.adapters.sql_catalog_rows import (
    Row,
    clean_text,
    read_attempts,
    read_job,
    write_attempts,
    write_problem,
)
from kb.adapters.sql_tables import chunks, documents, jobs, pages
from kb.errors import JobNotFoundError, JobStateError
from kb.types import Attempt, DocumentState, Job, JobState, Problem

PAUSED_STAGE = "paused"
_STALLED_AFTER = timedelta(seconds=30)
_BLAMELESS = frozenset({"worker_stopped"})
_DOCUMENT_STATES = {
    JobState.FAILED: DocumentState.FAILED,
    JobState.CANCELLED: DocumentState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker's process remembers of the attempt it started, to notice that it lost it."""

    token: str
    collection_id: str
    document_id: str
    generation: int


def insert_job(
    c: sa.Connection, job_id: str, *, collection_id: str, document_id: str, generation: int, now: datetime
) -> Job:
    """Insert a queued job."""
    job = Job(job_id, collection_id, document_id, generation, JobState.QUEUED, now, now)
    c.execute(
        sa.insert(jobs).values(
            id=job_id,
            collection_id=collection_id,
            document_id=document_id,
            generation=generation,
            state=job.state,
            created_at=now,
            updated_at=now,
            attempts=[],
            cancel_requested=False,
        )
    )
    return job


def queued_columns(generation: int, job_id: str, *, now: datetime) -> dict[str, Any]:
    """Return the columns of a document whose next generation waits for a worker."""
    return {
        "generation": generation,
        "job_id": job_id,
        "state": DocumentState.QUEUED,
        "updated_at": now,
        "finished_at": None,
        "stage": "",
        "pages_done": 0,
        "attempt": 0,
        "error": None,
        "warnings": [],
    }


def find_job_row(c: sa.Connection, job_id: str) -> Row | None:
    """Select by id."""
    return c.execute(sa.select(jobs).where(jobs.c.id == clean_text(job_id))).mappings().one_or_none()


def get_job_row(c: sa.Connection, job_id: str) -> Row:
    """Select by id, or raise."""
    row = find_job_row(c, job_id)
    if row is None:
        raise JobNotFoundError(job_id)
    return row


def list_jobs(
    c: sa.Connection, *, collection_id: str | None, state: JobState | None, limit: int, after: str | None
) -> list[Job]:
    """Select one page, newest first."""
    query = sa.select(jobs)
    if collection_id is not None:
        query = query.where(jobs.c.collection_id == clean_text(collection_id))
    if state is not None:
        query = query.where(jobs.c.state == state)
    order = (jobs.c.created_at, jobs.c.generation, jobs.c.id)
    if after is not None:
        last = get_job_row(c, after)
        bounds = [sa.literal(last[column.name], column.type) for column in order]
        query = query.where(sa.tuple_(*order) < sa.tuple_(*bounds))
    rows = c.execute(query.order_by(*(column.desc() for column in order)).limit(limit)).mappings()
    return [read_job(row) for row in rows]


def count_jobs(c: sa.Connection) -> dict[JobState, int]:
    """Count by state."""
    rows = c.execute(sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state))
    return {JobState(state): count for state, count in rows}


def list_stalled_jobs(c: sa.Connection, *, now: datetime, begun_only: bool, limit: int) -> list[str]:
    """Select what nobody works on, oldest first; workers that are gone write no more garbage."""
    release_expired_garbage(c, now=now)
    states = [JobState.RUNNING] if begun_only else [JobState.QUEUED, JobState.RUNNING]
    return list(
        c.scalars(
            sa.select(jobs.c.id)
            .where(
                jobs.c.state.in_(states),
                jobs.c.updated_at <= now - _STALLED_AFTER,
                sa.or_(jobs.c.lease_until.is_(None), jobs.c.lease_until <= now),
            )
            .order_by(jobs.c.updated_at, jobs.c.id)
            .limit(limit)
        )
    )


def start_attempt(
    c: sa.Connection, job_id: str, *, worker: str, lease_s: float, max_attempts: int, now: datetime
) -> tuple[Job, Lease] | None:
    """Count the attempt and take the lease."""
    row = get_job_row(c, job_id)
    if JobState(row["state"]).is_terminal or _is_held(row, now=now):
        return None
    if row["cancel_requested"]:
        end_job(c, row, JobState.CANCELLED, problem=None, now=now)
        return None
    attempts = read_attempts(row["attempts"])
    is_paused = row["state"] == JobState.QUEUED and bool(attempts) and attempts[-1].finished_at is None
    if is_paused:
        attempts = (*attempts[:-1], replace(attempts[-1], worker=worker))
    else:
        lost = Problem("worker_lost", "the worker stopped without a word", "Look at the worker's log.")
        attempts = _close_attempts(row, problem=lost, now=now)
    counted = [a for a in attempts if a.error is None or a.error.code not in _BLAMELESS]
    if len(counted) >= max_attempts and not is_paused:
        exhausted = Problem(
            "attempts_exhausted",
            f"the document was tried {len(counted)} times and never finished",
            f"Look at the worker's log, then try again with `kb jobs retry {job_id}`.",
        )
        end_job(c, row, JobState.FAILED, problem=exhausted, now=now)
        return None
    if not is_paused:
        attempts = (*attempts, Attempt(number=len(attempts) + 1, worker=worker, started_at=now))
    lease = Lease(secrets.token_hex(8), row["collection_id"], row["document_id"], row["generation"])
    _update_job(
        c,
        row,
        state=JobState.RUNNING,
        updated_at=now,
        attempts=write_attempts(attempts),
        lease_token=lease.token,
        lease_until=now + timedelta(seconds=lease_s),
    )
    if not is_paused:
        _update_document(
            c,
            row,
            state=DocumentState.PARSING,
            stage="",
            pages_done=0,
            attempt=len(attempts),
            error=None,
            updated_at=now,
        )
    return read_job(get_job_row(c, job_id)), lease


def find_working_row(c: sa.Connection, job_id: str, lease: Lease | None) -> Row | None:
    """Return the job's row if whoever holds `lease` shall go on working, else None."""
    row = find_job_row(c, job_id)
    if row is None or row["state"] != JobState.RUNNING or row["cancel_requested"]:
        return None
    return None if _is_lost(row, lease) else row


def report_progress(
    c: sa.Connection,
    job_id: str,
    lease: Lease | None,
    *,
    state: DocumentState,
    stage: str,
    pages_done: int,
    page_count: int,
    rest_s: float | None,
    lease_s: float,
    now: datetime,
) -> bool:
    """Store progress and renew the lease."""
    row = find_working_row(c, job_id, lease)
    if row is None:
        return False
    *former, last = read_attempts(row["attempts"])
    _update_job(
        c,
        row,
        updated_at=now,
        lease_until=now + timedelta(seconds=lease_s),
        attempts=write_attempts((*former, replace(last, rest_s=rest_s))),
    )
    _update_document(
        c,
        row,
        state=state,
        stage=clean_text(stage),
        pages_done=pages_done,
        page_count=page_count,
        updated_at=now,
    )
    return True


def succeed_job(c: sa.Connection, row: Row, *, now: datetime) -> None:
    """End the job; its document is the caller's business."""
    _update_job(c, row, **_ended_columns(row, JobState.SUCCEEDED, problem=None, now=now))


def fail_job(c: sa.Connection, job_id: str, lease: Lease | None, *, problem: Problem, now: datetime) -> None:
    """End the job as failed, or as cancelled if that was asked for before."""
    row = _find_own_row(c, job_id, lease)
    if row is not None:
        state = JobState.CANCELLED if row["cancel_requested"] else JobState.FAILED
        end_job(c, row, state, problem=None if row["cancel_requested"] else problem, now=now)
    leave_job(c, lease)


def release_job(
    c: sa.Connection, job_id: str, lease: Lease | None, *, problem: Problem, now: datetime
) -> None:
    """Put the job back to queued, or end it as cancelled if that was asked for."""
    row = _find_own_row(c, job_id, lease)
    if row is not None:
        if row["cancel_requested"]:
            end_job(c, row, JobState.CANCELLED, problem=None, now=now)
        else:
            attempts = write_attempts(_close_attempts(row, problem=problem, now=now))
            columns = {"lease_token": None, "lease_until": None, "attempts": attempts}
            _update_job(c, row, state=JobState.QUEUED, updated_at=now, **columns)
            _update_document(c, row, state=DocumentState.QUEUED, stage="", updated_at=now)
    leave_job(c, lease)


def pause_job(c: sa.Connection, job_id: str, lease: Lease | None, *, now: datetime) -> None:
    """Put the job back to queued with its attempt open, or end it as cancelled if that was asked for."""
    row = _find_own_row(c, job_id, lease)
    if row is not None:
        if row["cancel_requested"]:
            end_job(c, row, JobState.CANCELLED, problem=None, now=now)
        else:
            _update_job(c, row, state=JobState.QUEUED, updated_at=now, lease_token=None, lease_until=None)
            _update_document(c, row, stage=PAUSED_STAGE, updated_at=now)
    leave_job(c, lease)


def has_waiting_jobs(c: sa.Connection, *, besides: str) -> bool:
    """Look for a queued job."""
    waiting = sa.select(jobs.c.id).where(jobs.c.state == JobState.QUEUED, jobs.c.id != clean_text(besides))
    return bool(c.scalar(sa.select(waiting.exists())))


def finish_cancel(c: sa.Connection, job_id: str, lease: Lease | None, *, now: datetime) -> None:
    """End the job if it was cancelled."""
    row = _find_own_row(c, job_id, lease)
    if row is not None and row["cancel_requested"]:
        end_job(c, row, JobState.CANCELLED, problem=None, now=now)
    leave_job(c, lease)


def cancel_job(c: sa.Connection, job_id: str, *, now: datetime) -> Job:
    """Ask a live worker to stop, or end the job if there is none."""
    row = get_job_row(c, job_id)
    _stop(c, row, now=now)
    return read_job(get_job_row(c, job_id))


def supersede_job(c: sa.Connection, job_id: str, *, now: datetime) -> None:
    """Stop a job whose document gets a newer one."""
    row = find_job_row(c, job_id)
    if row is not None:
        _stop(c, row, now=now)


def retry_job(c: sa.Connection, job_id: str, *, now: datetime) -> Job:
    """Queue the job again with a new generation: garbage of the old one may still be about."""
    row = get_job_row(c, job_id)
    is_newest = c.scalar(sa.select(sa.exists().where(documents.c.job_id == row["id"])))
    if row["state"] not in (JobState.FAILED, JobState.CANCELLED) or not is_newest:
        raise JobStateError(
            f"job {job_id!r} is {row['state']}" if is_newest else f"job {job_id!r} has a successor",
            next_step="Only a failed or cancelled job can be tried again, the newest of its document.",
        )
    generation = take_generation(c, row["collection_id"])
    _update_job(
        c,
        row,
        generation=generation,
        state=JobState.QUEUED,
        updated_at=now,
        attempts=[],
        cancel_requested=False,
    )
    _update_document(c, row, **queued_columns(generation, job_id, now=now))
    return read_job(get_job_row(c, job_id))


def end_job(c: sa.Connection, row: Row, state: JobState, *, problem: Problem | None, now: datetime) -> None:
    """End the job without success; what it has stored so far goes."""
    document_id, generation = row["document_id"], row["generation"]
    _update_job(c, row, **_ended_columns(row, state, problem=problem, now=now))
    _update_document(
        c,
        row,
        state=_DOCUMENT_STATES[state],
        stage="",
        error=write_problem(problem) if problem else None,
        updated_at=now,
        finished_at=now,
    )
    for table in (pages, chunks):
        c.execute(
            sa.delete(table).where(table.c.document_id == document_id, table.c.generation == generation)
        )
    add_garbage(c, row["collection_id"], document_key(document_id, generation))


def leave_job(c: sa.Connection, lease: Lease | None) -> None:
    """Note that the worker writes no more: what it left is listed once more, unless it is needed."""
    if lease is not None and not is_live_key(c, lease.document_id, lease.generation):
        add_garbage(c, lease.collection_id, document_key(lease.document_id, lease.generation))


def _stop(c: sa.Connection, row: Row, *, now: datetime) -> None:
    if JobState(row["state"]).is_terminal:
        return
    if _is_held(row, now=now):
        _update_job(c, row, cancel_requested=True, updated_at=now)
        return
    end_job(c, row, JobState.CANCELLED, problem=None, now=now)


def _is_held(row: Row, *, now: datetime) -> bool:
    """Return whether a worker holds the job and has been heard of in time."""
    return row["lease_until"] is not None and row["lease_until"] > now


def _is_lost(row: Row, lease: Lease | None) -> bool:
    """Return whether somebody else has taken the job over from whoever holds `lease`."""
    return lease is not None and lease.token != row["lease_token"]


def _find_own_row(c: sa.Connection, job_id: str, lease: Lease | None) -> Row | None:
    """Return the job's row if it has not ended and is not somebody else's."""
    row = find_job_row(c, job_id)
    if row is None or JobState(row["state"]).is_terminal or _is_lost(row, lease):
        return None
    return row


def _ended_columns(row: Row, state: JobState, *, problem: Problem | None, now: datetime) -> dict[str, Any]:
    return {
        "state": state,
        "updated_at": now,
        "attempts": write_attempts(_close_attempts(row, problem=problem, now=now)),
        "lease_token": None,
        "lease_until": None,
        # a job that was cancelled says so, whoever ended it
        "cancel_requested": row["cancel_requested"] or state is JobState.CANCELLED,
    }


def _close_attempts(row: Row, *, problem: Problem | None, now: datetime) -> tuple[Attempt, ...]:
    attempts: Sequence[Attempt] = read_attempts(row["attempts"])
    return tuple(
        attempt if attempt.finished_at else replace(attempt, finished_at=now, error=problem)
        for attempt in attempts
    )


def _update_job(c: sa.Connection, row: Row, **columns: Any) -> None:
    c.execute(sa.update(jobs).where(jobs.c.id == row["id"]).values(columns))


def _update_document(c: sa.Connection, row: Row, **columns: Any) -> None:
    """Change the document, if `row` is its newest job."""
    c.execute(sa.update(documents).where(documents.c.job_id == row["id"]).values(columns))
