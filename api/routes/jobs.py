"""Routes of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.access import AuditDep, CallerDep, require
from api.convert import build_job
from api.errors import document_errors
from api.services import Services, ServicesDep
from kb.access import Caller, Role
from kb.errors import (
    CollectionNotFoundError,
    DocumentNotFoundError,
    JobNotFoundError,
    JobStateError,
)
from kb.schemas import JobOut, JobsOut
from kb.types import Job, JobState

router = APIRouter(prefix="/v1/jobs", tags=["Jobs"])


@router.get("", summary="List jobs", responses=document_errors(CollectionNotFoundError))
def list_jobs(
    services: ServicesDep,
    caller: CallerDep,
    *,
    collection: Annotated[str | None, Query(description="Only jobs of this collection.")] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="Most jobs in one answer.")] = 100,
    after: Annotated[
        str | None, Query(max_length=200, description="`next_after` of the page before.")
    ] = None,
) -> JobsOut:
    """Jobs of the caller's collections, newest first; a page may hold fewer than `limit`."""
    if collection is not None:
        caller.require_collection(collection)
    catalog = services.knowledge.catalog
    collection_id = None if collection is None else catalog.get_collection(collection).id
    jobs = catalog.list_jobs(collection_id=collection_id, state=state, limit=limit + 1, after=after)
    names: dict[str, str] = {}
    shown = []
    for job in jobs[:limit]:
        try:
            item = _show(job, services, names)
        except (CollectionNotFoundError, DocumentNotFoundError):
            continue  # deleted since the list was read
        if caller.may_use(item.collection):
            shown.append(item)
    return JobsOut(jobs=shown, next_after=jobs[limit - 1].id if len(jobs) > limit else None)


@router.get("/{job_id}", summary="Show a job", responses=document_errors(JobNotFoundError))
def get_job(job_id: str, services: ServicesDep, caller: CallerDep) -> JobOut:
    """A job with its progress, attempts and remaining time; `stalled_reason` says why nobody works on it."""
    return _show_one(job_id, services, caller)


@router.post(
    "/{job_id}/cancel",
    summary="Cancel a job",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(JobNotFoundError),
)
def cancel_job(job_id: str, services: ServicesDep, caller: CallerDep, audit: AuditDep) -> JobOut:
    """A queued job ends at once, a running one within seconds; one that has ended stays as it is."""
    job = _show_one(job_id, services, caller)
    services.knowledge.library.cancel_job(job_id)
    audit.record("job.cancel", collection=job.collection, target=job_id, document=job.document_id)
    return _show_one(job_id, services, caller)


@router.post(
    "/{job_id}/retry",
    summary="Retry a failed or cancelled job",
    dependencies=[require(Role.EDITOR)],
    responses=document_errors(JobNotFoundError, JobStateError),
)
def retry_job(job_id: str, services: ServicesDep, caller: CallerDep, audit: AuditDep) -> JobOut:
    """Queues the job again with fresh attempts."""
    job = _show_one(job_id, services, caller)
    services.knowledge.library.retry_job(job_id)
    audit.record("job.retry", collection=job.collection, target=job_id, document=job.document_id)
    return _show_one(job_id, services, caller)


def _show_one(job_id: str, services: Services, caller: Caller) -> JobOut:
    """Return a job of the caller's collections; one of others' is as unknown as one that is not there."""
    try:
        job = _show(services.knowledge.catalog.get_job(job_id), services, {})
    except (CollectionNotFoundError, DocumentNotFoundError):
        raise JobNotFoundError(job_id) from None
    if not caller.may_use(job.collection):
        raise JobNotFoundError(job_id)
    return job


def _show(job: Job, services: Services, names: dict[str, str]) -> JobOut:
    """Return the job with names and progress; `names` keeps the names of collections."""
    catalog = services.knowledge.catalog
    if job.collection_id not in names:
        names[job.collection_id] = catalog.get_collection_by_id(job.collection_id).name
    library = services.knowledge.library
    document = catalog.get_document(job.collection_id, job.document_id)
    return build_job(
        job,
        document,
        collection=names[job.collection_id],
        stalled_reason=library.find_stalled_reason(job),
        eta_s=library.estimate_rest_s(job, document),
    )
