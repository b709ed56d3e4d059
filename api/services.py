"""Services: what the routes receive, made once by `create_app`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from kb.knowledge import KnowledgeBase
from kb.types import DependencyStatus

_READINESS_AGE_S = 2.0


class Readiness:
    """The state of all dependencies, asked for at most every two seconds.

    It has a thread of its own, so that slow answers can't make the service look dead.
    """

    def __init__(self, knowledge: KnowledgeBase) -> None:
        self._knowledge = knowledge
        self._limiter = anyio.CapacityLimiter(1)
        self._lock = anyio.Lock()
        self._checked_at = float("-inf")
        self._statuses: list[DependencyStatus] = []

    async def get(self) -> list[DependencyStatus]:
        """Return one status per dependency."""
        async with self._lock:
            if time.monotonic() - self._checked_at > _READINESS_AGE_S:
                self._statuses = await anyio.to_thread.run_sync(
                    self._knowledge.check_dependencies, limiter=self._limiter
                )
                self._checked_at = time.monotonic()
            return self._statuses


@dataclass(frozen=True, slots=True)
class Services:
    """The knowledge base, the limits of this process, and its defaults for requests.

    Answers and uploads have threads of their own: however many are slow, the other routes go on.
    """

    knowledge: KnowledgeBase
    readiness: Readiness
    top_k: int
    answer_tokens: int
    heartbeat_s: float
    first_event_patience_s: float
    spool_dir: Path | None
    answer_limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(64))
    upload_limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(16))


def get_services(request: Request) -> Services:
    """Return the services of the application that got this request."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


ServicesDep = Annotated[Services, Depends(get_services)]
