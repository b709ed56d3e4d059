"""CeleryIngestQueue: jobs go to the workers as Celery messages over a Redis-protocol server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from celery import Celery
from kombu.exceptions import KombuError, OperationalError

from kb.errors import QueueUnavailableError

INGEST_TASK = "kb.ingest"
"""Name of the task, and of the queue it waits in; its one argument is `job_id`."""

_CONNECT_S = 2.0
_REPLY_S = 0.8
_UNIX = "unix://"


def to_celery_url(redis_url: str) -> str:
    """Return what Celery calls the server; only unix sockets are spelt otherwise."""
    if not redis_url.startswith(_UNIX):
        return redis_url
    place, _, query = redis_url.removeprefix(_UNIX).partition("?")
    options = [f"virtual_host={part[3:]}" if part.startswith("db=") else part for part in query.split("&")]
    return f"redis+socket://{place}" + (f"?{'&'.join(options)}" if query else "")


class CeleryIngestQueue:
    """Submits jobs; the workers' side is the package `workers`."""

    def __init__(self, *, redis_url: str) -> None:
        """Connect at the first call; `redis_url` is redis://, rediss:// or unix://."""
        self._app = Celery("kb", broker=to_celery_url(redis_url), set_as_current=False)
        self._app.conf.update(
            task_serializer="json",
            task_ignore_result=True,
            task_default_queue=INGEST_TASK,
            broker_connection_timeout=_CONNECT_S,
            broker_transport_options={"socket_connect_timeout": _CONNECT_S, "socket_timeout": 5.0},
        )
        self._client = redis.Redis.from_url(redis_url, socket_timeout=_CONNECT_S)

    def submit(self, job_id: str) -> None:
        # a connection that the server has closed in the meantime shows only when it is used: one retry
        policy = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2}
        with _as_queue_error():
            self._app.send_task(INGEST_TASK, kwargs={"job_id": job_id}, retry=True, retry_policy=policy)

    def count_waiting(self) -> int:
        with _as_queue_error(), self._app.connection_for_write() as connection:
            return int(connection.default_channel.queue_declare(INGEST_TASK).message_count)

    def get_live_workers(self) -> int:
        with _as_queue_error():
            return len(self._app.control.ping(timeout=_REPLY_S))

    def ping(self) -> str:
        with _as_queue_error():
            info = self._client.info("server")
        name = info.get("server_name", "redis")
        return f"{name} {info.get(f'{name}_version', info.get('redis_version', ''))}".strip()

    def close(self) -> None:
        """Close the connections."""
        self._app.close()
        self._client.close()


@contextmanager
def _as_queue_error() -> Iterator[None]:
    try:
        yield
    except (KombuError, OperationalError, redis.RedisError, OSError) as error:
        raise QueueUnavailableError(f"the job queue does not answer ({type(error).__name__})") from error
