"""create_app: the HTTP application around a knowledge base."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from anyio.to_thread import current_default_thread_limiter, run_sync
from fastapi import FastAPI

from api import docs
from api.access import require
from api.auth import ApiKeyGate
from api.errors import install_error_handlers
from api.middleware import BodyLimit, RequestContext
from api.periodic import PeriodicThread
from api.routes import (
    answers,
    calibration,
    collections,
    dify,
    documents,
    embeddings,
    faults,
    health,
    jobs,
    keys,
    openai,
    receipts,
    search,
)
from api.services import Readiness, Services
from kb.access import Role
from kb.errors import BackendError
from kb.knowledge import KnowledgeBase

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Largest body of a request that is not an upload."""

_PURGE_INTERVAL_S = 3600.0
_ROUTE_THREADS = 100
_DESCRIPTION = (
    "Offline knowledge base: manuals in, cited answers out. Every failure has the shape `ErrorOut` "
    "with a stable `code`; every response carries `X-Request-ID`."
)


def create_app(
    knowledge: KnowledgeBase,
    *,
    top_k: int = 8,
    answer_tokens: int = 256,
    spool_dir: Path | None = None,
    heartbeat_s: float = 10.0,
    first_event_patience_s: float = 5.0,
    sweep_interval_s: float = 10.0,
) -> FastAPI:
    """Return the application; its lifespan sweeps, warms the embedder, and closes nothing it did not open.

    `spool_dir` holds uploads on their way in; default is the system's folder for temporary files.
    A stream sends its status with the first event, or after `first_event_patience_s` without one,
    and a comment every `heartbeat_s`.
    """
    services = Services(
        knowledge=knowledge,
        readiness=Readiness(knowledge),
        top_k=top_k,
        answer_tokens=answer_tokens,
        heartbeat_s=heartbeat_s,
        first_event_patience_s=first_event_patience_s,
        spool_dir=spool_dir,
    )
    tasks = (
        PeriodicThread("sweep", _Sweep(knowledge), interval_s=sweep_interval_s),
        PeriodicThread("purge", knowledge.receipts.purge, interval_s=_PURGE_INTERVAL_S),
        PeriodicThread("warm-up", _WarmUp(knowledge), interval_s=30.0),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = _ROUTE_THREADS
        with suppress(BackendError):  # the sweep tries again, and logs it
            await run_sync(knowledge.library.ensure_default_collection)
        for task in tasks:
            task.start()
        yield
        for task in tasks:
            task.stop()

    app = FastAPI(
        title="kb",
        version=health.get_version(),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.services = services
    knowledge.metrics.watch_catalog(knowledge.catalog)
    install_error_handlers(app)
    for module in (
        collections,
        calibration,
        documents,
        jobs,
        search,
        faults,
        answers,
        receipts,
        openai,
        embeddings,
        dify,
        keys,
    ):
        app.include_router(module.router, dependencies=[require(Role.READER)])
    for module in (health, docs):
        app.include_router(module.router)
    # the last one added is the outermost
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    app.add_middleware(ApiKeyGate, keys=knowledge.keys)
    app.add_middleware(RequestContext, metrics=knowledge.metrics)
    return app


class _Sweep:
    """Ensures the default collection once, then sweeps."""

    def __init__(self, knowledge: KnowledgeBase) -> None:
        self._library = knowledge.library
        self._prepared = False

    def __call__(self) -> None:
        if not self._prepared:
            self._library.ensure_default_collection()
            self._prepared = True
        self._library.sweep()


class _WarmUp:
    """Loads the embedder, again and again until it worked."""

    def __init__(self, knowledge: KnowledgeBase) -> None:
        self._knowledge = knowledge
        self._done = threading.Event()

    def __call__(self) -> None:
        if not self._done.is_set():
            self._knowledge.warm_up()
            self._done.set()
