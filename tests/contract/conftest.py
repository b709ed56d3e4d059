"""Servers that several contract tests share; each starts at its first use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import ChromaServer, running_chroma, running_postgresql


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    """A Chroma server for this session."""
    with running_chroma(tmp_path_factory.mktemp("chroma")) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """A PostgreSQL server for this session."""
    with running_postgresql() as url:
        yield url
