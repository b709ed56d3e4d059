"""The Celery side of ingestion: how messages are taken, and how a worker process lives and ends."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from celery import Celery, signals
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from kb.adapters.celery_queue import INGEST_TASK, to_celery_url
from kb.errors import BackendError, KbError

_log = structlog.get_logger(__name__)

_STOPPING, _FAILED = 0, 1


class Pipeline(Protocol):
    """What a pool process calls for each job; see `ingest.pipeline.IngestPipeline.run`."""

    def run(self, job_id: str, *, worker: str, should_stop: Callable[[], bool]) -> None:
        """Run the job to its end.

        Raises `BackendError` when it may be run again later, `JobPausedError` when it shall be.
        """
        ...


def create_celery(redis_url: str, visibility_timeout_s: float) -> Celery:
    """Return an app whose messages outlive workers and broker.

    A message stays with the broker until its job has ended. A worker that dies gives it back at
    once if one of its processes was killed, else `visibility_timeout_s` after it was taken. A job
    that takes longer is delivered a second time: its lease in the catalog makes that a no-op.
    """
    app = Celery("kb", broker=to_celery_url(redis_url), set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_default_queue=INGEST_TASK,
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        # loading an embedding model takes longer than the four seconds a new process gets by default
        worker_proc_alive_timeout=600.0,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": visibility_timeout_s,
            "unacked_restore_interval": 2,
            "unacked_restore_throttle": 1,
        },
    )
    return app


class WorkerState:
    """Flags that the main process and its pool processes share, and each process's pipeline.

    Made before the fork. A bare shared page instead of a lock: a process that is killed while it
    holds a lock would take all others with it.
    """

    def __init__(self, build_pipeline: Callable[[], Pipeline]) -> None:
        """`build_pipeline` is called once in each pool process, after the fork."""
        self._build_pipeline = build_pipeline
        self._flags = mmap.mmap(-1, 2)
        self._pipeline: Pipeline | None = None

    def get_pipeline(self) -> Pipeline:
        """Return the pipeline of this process, built by the first call.

        A dependency that is still starting is waited for, for a minute; then raises its `BackendError`.
        """
        if self._pipeline is None:
            waiting = Retrying(
                retry=retry_if_exception_type(BackendError),
                wait=wait_exponential(multiplier=0.5, max=8),
                stop=stop_after_delay(60),
                reraise=True,
            )
            for attempt in waiting:
                with attempt:
                    self._pipeline = self._build_pipeline()
            assert self._pipeline is not None
        return self._pipeline

    def is_stopping(self) -> bool:
        """Return whether the worker was told to stop, in any of its processes."""
        return self._flags[_STOPPING] != 0

    def stop(self) -> None:
        """Tell every process to give its job back."""
        self._flags[_STOPPING] = 1

    @property
    def has_failed(self) -> bool:
        """True when a pool process could not build its pipeline."""
        return self._flags[_FAILED] != 0

    def fail(self) -> None:
        """Note that this installation can't run jobs, and stop the worker."""
        self._flags[_FAILED] = 1
        self.stop()
        os.kill(os.getppid(), signal.SIGTERM)


def run_worker(app: Celery, state: WorkerState, *, concurrency: int) -> int:
    """Work until SIGTERM or SIGINT; returns the exit code: 1 if the pipeline can't be built.

    The first signal lets idle processes end and makes running ones give their jobs back, which
    takes a few seconds. Needs the main thread; forks, so no model may be loaded before.
    """

    def keep_logging(**_: Any) -> None:
        """Being connected is enough: Celery then leaves the log as it is."""

    def give_back(**_: Any) -> None:
        state.stop()

    def build(**_: Any) -> None:
        try:
            state.get_pipeline()
        except KbError as error:
            _log.error(
                "worker_cannot_start", code=error.code, reason=error.message, next_step=error.next_step
            )
            state.fail()
        except Exception:
            _log.error("worker_cannot_start", code="internal_error", exc_info=True)
            state.fail()

    signals.setup_logging.connect(keep_logging)
    signals.worker_shutting_down.connect(give_back)
    signals.worker_process_init.connect(build)
    try:
        worker = app.Worker(
            hostname=f"worker-{os.getpid()}@{os.uname().nodename}",
            pool_cls="prefork",
            concurrency=concurrency,
            optimization="fair",
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        worker.start()
    finally:
        signals.setup_logging.disconnect(keep_logging)
        signals.worker_shutting_down.disconnect(give_back)
        signals.worker_process_init.disconnect(build)
    return 1 if state.has_failed else int(worker.exitcode or 0)
