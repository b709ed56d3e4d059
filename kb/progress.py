"""How long a job will still take, from the speed it has shown."""

from __future__ import annotations

from datetime import datetime

from kb.types import Document, Job, JobState


def estimate_rest_s(job: Job, document: Document, *, now: datetime) -> float | None:
    """Return the seconds until the present stage of a running job ends, None before its first page is done.

    The pages done since the stage began give the speed. The next stage has a speed of its own, which
    nobody knows yet: its time is not included.
    """
    if job.state is not JobState.RUNNING or not job.attempts or document.job_id != job.id:
        return None
    started = job.attempts[-1].stage_started_at
    if started is None or not document.pages_done or not document.page_count:
        return None
    page_s = (document.updated_at - started).total_seconds() / document.pages_done
    rest_s = page_s * (document.page_count - document.pages_done)
    return max(rest_s - (now - document.updated_at).total_seconds(), 0.0)
