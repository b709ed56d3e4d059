"""Routes for those who watch the service."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from api.access import require
from api.convert import build_dependency
from api.services import ServicesDep
from kb.access import Role
from kb.schemas import LiveOut, ReadyOut

router = APIRouter(tags=["Health"])

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/health/live", summary="Does the process answer?")
async def get_live() -> LiveOut:
    """Always 200 while the process can answer; says nothing about its dependencies."""
    return LiveOut(version=get_version())


@router.get(
    "/health/ready",
    summary="Can the service work?",
    response_model=ReadyOut,
    responses={503: {"model": ReadyOut, "description": "A required dependency is down."}},
)
async def get_ready(services: ServicesDep) -> JSONResponse:
    """Each dependency by name. Dependencies that are not required don't change the status."""
    statuses = await services.readiness.get()
    ready = all(status.ok for status in statuses if status.required)
    body = ReadyOut(ready=ready, dependencies=[build_dependency(status) for status in statuses])
    return JSONResponse(body.model_dump(), status_code=200 if ready else 503)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    dependencies=[require(Role.ADMIN)],
    response_class=Response,
    responses={200: {"description": "Text format 0.0.4.", "content": {"text/plain": {}}}},
)
def get_metrics(services: ServicesDep) -> Response:
    """Counts and durations of requests and answers; documents and jobs by state."""
    return Response(services.knowledge.metrics.render(), headers={"Content-Type": _METRICS_TYPE})


def get_version() -> str:
    """Return the installed version of the service."""
    try:
        return version("kb")
    except PackageNotFoundError:
        return "0+unknown"
