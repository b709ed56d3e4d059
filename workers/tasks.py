"""The one task: a message is one call of the pipeline, and this is what follows when it did not end."""

from __future__ import annotations

from celery import Celery, Task
from celery.exceptions import Reject

from kb.adapters.celery_queue import INGEST_TASK
from kb.errors import BackendError, JobPausedError
from workers.app import WorkerState

PAUSED_PRIORITY = 9
"""Redis transport: 0 is taken first, and what is submitted without a priority has 0."""

_FIRST_PAUSE_S = 3
_LONGEST_PAUSE_S = 30


def add_ingest_task(app: Celery, state: WorkerState) -> None:
    """Register the task that runs jobs with the pipeline of its process.

    A job that a dependency failed is run again after a pause; how often, the catalog decides when
    it starts the next attempt. While the catalog itself is down, the message waits. A job that lets
    others go first is submitted again behind all that have not begun.
    """

    @app.task(bind=True, name=INGEST_TASK, max_retries=None)  # type: ignore[untyped-decorator] # Celery has no types
    def ingest(task: Task, job_id: str) -> None:
        if state.is_stopping():
            raise Reject("the worker is stopping", requeue=True)
        try:
            state.get_pipeline().run(job_id, worker=task.request.hostname, should_stop=state.is_stopping)
        except JobPausedError:
            task.apply_async(kwargs={"job_id": job_id}, priority=PAUSED_PRIORITY)
        except BackendError as error:
            pause_s = min(_FIRST_PAUSE_S * 3**task.request.retries, _LONGEST_PAUSE_S)
            raise task.retry(exc=error, countdown=pause_s) from error
        if state.is_stopping():
            # the job may have been given back; a message for a job that has ended does nothing
            raise Reject("the worker is stopping", requeue=True)
