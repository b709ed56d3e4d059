from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kb.cli.main import app
from kb.client import KbClient
from tests.unit.kb.cli.fake_service import State, create_app, serve


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def _running() -> Iterator[tuple[State, str]]:
    state = State()
    with serve(create_app(state)) as url:
        yield state, url


@pytest.fixture
def state(_running: tuple[State, str]) -> State:
    """A service that was just started."""
    found, _ = _running
    fresh = State()
    for name in State.__dataclass_fields__:
        setattr(found, name, getattr(fresh, name))
    return found


@pytest.fixture
def url(_running: tuple[State, str], state: State) -> str:
    return _running[1]


@pytest.fixture
def client(url: str) -> Iterator[KbClient]:
    with KbClient(url) as opened:
        yield opened


@pytest.fixture
def run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the kb command in this process against the service."""
    for name in [name for name in os.environ if name.startswith("KB_") or name == "COLUMNS"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KB_API_URL", url)
    monkeypatch.setenv("KB_DATA_DIR", str(tmp_path / "data"))

    def invoke(*arguments: str, answer: str | None = None, **settings: str) -> Ended:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        result = CliRunner().invoke(app, list(arguments), input=answer, prog_name="kb")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def make_file(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, body: str | bytes = "") -> Path:
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body.encode() if isinstance(body, str) else body)
        return path

    return make
