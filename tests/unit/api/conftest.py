from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from starlette.testclient import TestClient

from tests.unit.api.service import Service


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """Keep the pretty tracebacks of an unconfigured logger out of the tests: they take seconds."""
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()], logger_factory=structlog.ReturnLoggerFactory()
    )
    yield
    structlog.reset_defaults()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(service.build_app()) as client:
        yield client
