"""A worker process whose jobs only say that they ran: `ingest_worker.py URL FOLDER VISIBILITY_S`.

What a job does stands in the first part of its id: `wait-…` runs until a file `go` lies in the
folder or the worker stops, `once-…` fails its first run with an outage, `pause-…` waits for `go` and
lets others go first in its first run, anything else just ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kb.errors import JobPausedError, ModelMissingError, VectorStoreUnavailableError
from workers.app import WorkerState, create_celery, run_worker
from workers.tasks import add_ingest_task


class SayingPipeline:
    """Writes a line per start and end of a job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.say("built")

    def run(self, job_id: str, *, worker: str, should_stop: Callable[[], bool]) -> None:
        is_first = f"start {job_id}" not in (self._folder / "log").read_text()
        self.say(f"start {job_id} {os.getpid()}")
        if job_id.startswith("once-") and is_first:
            raise VectorStoreUnavailableError("not now")
        while job_id.startswith(("wait-", "pause-")) and not (self._folder / "go").exists():
            if should_stop():
                self.say(f"gave-back {job_id}")
                return
            time.sleep(0.02)
        if job_id.startswith("pause-") and is_first:
            raise JobPausedError("others wait")
        self.say(f"end {job_id}")

    def say(self, line: str) -> None:
        with (self._folder / "log").open("a") as log:
            log.write(line + "\n")


def build(folder: Path) -> SayingPipeline:
    if (folder / "broken").exists():
        raise ModelMissingError("no model")
    return SayingPipeline(folder)


if __name__ == "__main__":
    url, folder = sys.argv[1], Path(sys.argv[2])
    app = create_celery(url, float(sys.argv[3]))
    state = WorkerState(lambda: build(folder))
    add_ingest_task(app, state)
    sys.exit(run_worker(app, state, concurrency=1))
