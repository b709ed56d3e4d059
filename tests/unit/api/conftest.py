from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.unit.api.service import LOCAL, Service, quiet_logs


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """Keep the pretty tracebacks of an unconfigured logger out of the tests: they take seconds."""
    with quiet_logs():
        yield


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(service.build_app(), client=LOCAL) as client:
        yield client
