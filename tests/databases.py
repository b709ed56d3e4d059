"""The databases that the catalog can live in, for contract tests that run on each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tests.servers import fresh_database

DATABASES: dict[str, Callable[[Path, pytest.FixtureRequest], AbstractContextManager[str]]] = {
    "sqlite": lambda tmp, request: nullcontext(f"sqlite:///{tmp / 'new' / 'catalog.sqlite'}"),
    "postgresql": lambda tmp, request: fresh_database(request.getfixturevalue("postgresql_url")),
}
"""By name, what yields the URL of an empty one, in a folder that is not there yet."""
