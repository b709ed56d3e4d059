"""`kb up`: runs the whole service on this machine."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from kb.cli.session import ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from rich.console import Console

    from kb.cli.service import Service


def up(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Start everything on this machine and serve until Ctrl-C.

    Runs a private Redis-protocol server and a Chroma server (unless KB_REDIS_URL and KB_CHROMA_URL
    name others), a worker and the API. Each writes its log below the data folder, in `logs`. One
    that ends is started again, up to five times. Ctrl-C or SIGTERM ends all within 10 seconds.

    With --json, each change is one JSON document per line. The exit code is 0 after Ctrl-C once the
    service was ready.
    """
    from kb.cli.output import get_console
    from kb.cli.service import run_service

    console = get_console()
    settings = get_session(ctx).load_settings()
    serving = False
    try:
        with run_service(settings, console=console, emit=emit_line if as_json else None) as service:
            serving = True
            if as_json:
                emit_line({"event": "ready", "url": service.url, "ready_s": round(service.ready_s, 1)})
            else:
                print_welcome(console, service)
            service.wait()
    except KeyboardInterrupt:
        if not serving:
            raise
        raise typer.Exit(ExitCode.OK) from None


def print_welcome(console: Console, service: Service) -> None:
    """Print where the service is reached and what to do next."""
    from rich.markup import escape

    from kb.cli.output import format_duration
    from kb.client import KbClient
    from kb.errors import KbError

    console.print(
        f"\n[bold green]Ready[/] after {format_duration(service.ready_s)} on [bold]{service.url}[/]",
        highlight=False,
    )
    for label, value in (
        ("API documentation", f"{service.url}/docs"),
        ("data folder", str(service.data_dir)),
        ("logs", str(service.data_dir / "logs")),
        ("add documents", "kb ingest PATH…"),
        ("ask", 'kb ask "…"'),
    ):
        console.print(f"  [dim]{label:<18}[/]{escape(value)}", highlight=False, soft_wrap=True)
    try:
        with KbClient(service.url, timeout_s=5) as client:
            missing = [item for item in client.get_ready().dependencies if not item.ok]
    except KbError:
        missing = []
    for item in missing:
        console.print(f"[yellow]![/] {escape(item.name)}: {escape(item.detail)}", highlight=False)
    console.print("[dim]Ctrl-C stops it.[/]\n", highlight=False)


def emit_line(value: dict[str, Any]) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
