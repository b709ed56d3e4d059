"""`kb doctor`: looks at everything that the service stands on, and says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kb.cli.session import ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kb.cli.session import Session
    from kb.ports import PromptCounter
    from kb.runtime.checks import Check
    from kb.schemas import CollectionOut, ReadyOut
    from kb.settings import Settings


def doctor(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Check machine, card, models, runtime and the running service; needs none of the last three.

    The exit code is 1 if a check failed. Nothing is changed, and nobody outside is asked.
    """
    from kb.cli.model import print_checks
    from kb.cli.output import get_console, print_json
    from kb.offline import go_offline
    from kb.runtime.checks import FAIL

    go_offline()
    session = get_session(ctx)
    checks = list(_look(session, session.load_settings()))
    failed = [check for check in checks if check.state == FAIL]
    if as_json:
        listed = [
            {"name": item.name, "state": item.state, "detail": item.detail, "fix": item.fix}
            for item in checks
        ]
        print_json({"ok": not failed, "checks": listed})
    else:
        print_checks(get_console(), checks)
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def _look(session: Session, settings: Settings) -> Iterator[Check]:
    from datetime import UTC, datetime

    from kb import doctor
    from kb.bootstrap import resolve_generator
    from kb.embedded import state_path
    from kb.runtime.nvidia import list_gpu_processes, list_gpus

    yield from doctor.check_machine(settings.data_dir, now=datetime.now(UTC))
    gpus = list_gpus()
    yield from doctor.check_gpus(gpus, list_gpu_processes() if gpus else [])
    yield from doctor.check_models(
        settings.resolved_models_dir,
        embedder=settings.embedder_path,
        tokenizer=settings.generator_tokenizer_path or settings.generator_path,
    )
    is_http = resolve_generator(settings) == "http"
    yield from doctor.check_runtime(
        settings.generator_url if is_http else None,
        _open_counter(settings) if is_http else None,
        context_tokens=settings.context_tokens,
    )
    ready, collections = _ask_service(session)
    yield from doctor.check_service(ready, collections, _find_fingerprint(settings) if collections else "")
    state_file = state_path(settings.data_dir)
    yield from doctor.check_redis(_open_redis(settings, state_file))
    if ready is not None:
        yield from doctor.check_processes(state_file)


def _open_counter(settings: Settings) -> PromptCounter | None:
    from kb.bootstrap import build_prompt_counter
    from kb.errors import KbError

    try:
        return build_prompt_counter(settings, mode="generated")
    except KbError:
        return None  # the models' checks say what is missing


def _find_fingerprint(settings: Settings) -> str:
    from kb.bootstrap import build_embedder
    from kb.errors import KbError

    try:
        return build_embedder(settings).fingerprint
    except KbError:
        return ""


def _ask_service(session: Session) -> tuple[ReadyOut | None, list[CollectionOut]]:
    from kb.client import ClientError, ServiceUnreachableError

    try:
        with session.open_client() as client:
            ready = client.get_ready()
            return ready, client.list_collections()
    except ServiceUnreachableError:
        return None, []
    except ClientError:
        return ready, []  # without a key that opens the collections


def _open_redis(settings: Settings, state_file: Path) -> Callable[[str], str] | None:
    """Return CONFIG GET of the server that the service uses, None without one or where it is forbidden."""
    import json

    import redis

    url = settings.redis_url
    if url is None:
        try:
            url = json.loads(state_file.read_text("utf-8"))["redis_url"]
        except (OSError, ValueError, KeyError):
            return None
    client = redis.Redis.from_url(url, decode_responses=True, socket_timeout=5)
    try:
        client.config_get("save")
    except redis.RedisError:
        return None
    return lambda name: str(client.config_get(name).get(name, ""))
