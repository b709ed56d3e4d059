"""Routes of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.convert import build_job
from api.errors import document_errors
from api.services import Services, ServicesDep
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
    collection: Annotated[str | None, Query(description="Only jobs of this collection.")] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="Most jobs in one answer.")] = 100,
    after: Annotated[
        str | None, Query(max_length=200, description="`next_after` of the page before.")
    ] = None,
) -> JobsOut:
    """Jobs, newest first."""
    catalog = services.knowledge.catalog
    collection_id = None if collection is None else catalog.get_collection(collection).id
    jobs = catalog.list_jobs(collection_id=collection_id, state=state, limit=limit + 1, after=after)
    names: dict[str, str] = {}
    shown = []
    for job in jobs[:limit]:
        try:
            shown.append(_show(job, services, names))
        except (CollectionNotFoundError, DocumentNotFoundError):
            continue  # deleted since the list was read
    return JobsOut(jobs=shown, next_after=jobs[limit - 1].id if len(jobs) > limit else None)


@router.get("/{job_id}", summary="Show a job", responses=document_errors(JobNotFoundError))
def get_job(job_id: str, services: ServicesDep) -> JobOut:
    """A job with its progress, attempts and remaining time; `stalled_reason` says why nobody works on it."""
    return _show_one(services.knowledge.catalog.get_job(job_id), services)


@router.post(
    "/{job_id}/cancel",
    summary="Cancel a job",
    responses=document_errors(JobNotFoundError),
)
def cancel_job(job_id: str, services: ServicesDep) -> JobOut:
    """A queued job ends at once, a running one within seconds; one that has ended stays as it is."""
    return _show_one(services.knowledge.library.cancel_job(job_id), services)


@router.post(
    "/{job_id}/retry",
    summary="Retry a failed or cancelled job",
    responses=document_errors(JobNotFoundError, JobStateError),
)
def retry_job(job_id: str, services: ServicesDep) -> JobOut:
    """Queues the job again with fresh attempts."""
    return _show_one(services.knowledge.library.retry_job(job_id), services)


def _show_one(job: Job, services: Services) -> JobOut:
    try:
        return _show(job, services, {})
    except (CollectionNotFoundError, DocumentNotFoundError):
        raise JobNotFoundError(job.id) from None


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
