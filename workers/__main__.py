"""`python -m workers`: takes jobs from the queue and ingests documents until it is stopped."""

from __future__ import annotations

import sys

from kb.errors import KbError, SettingsError
from kb.offline import go_offline
from kb.settings import load_settings

_VISIBILITY_MARGIN_S = 15.0
"""A message comes back this long after a lease could have run out, so that it isn't dropped."""


def main() -> int:
    """Return the exit code: 0 after a signal, 1 if the worker can't work, 2 if a setting is wrong."""
    try:
        settings = load_settings()
        if settings.redis_url is None:
            raise SettingsError(
                "KB_REDIS_URL is not set, so the worker has no queue",
                next_step="Set it, or run `kb up`, which starts a private server and the workers.",
            )
    except KbError as error:
        sys.stderr.write(f"{error.message}\n{error.next_step}\n")
        return 2
    go_offline()

    from kb.bootstrap import build_pipeline
    from kb.logs import configure_logging
    from workers.app import WorkerState, create_celery, run_worker
    from workers.tasks import add_ingest_task

    configure_logging(process="worker", log_format=settings.log_format, log_level=settings.log_level)
    app = create_celery(settings.redis_url, settings.job_lease_s + _VISIBILITY_MARGIN_S)
    state = WorkerState(lambda: build_pipeline(settings))
    add_ingest_task(app, state)
    return run_worker(app, state, concurrency=settings.worker_concurrency)


if __name__ == "__main__":
    sys.exit(main())
