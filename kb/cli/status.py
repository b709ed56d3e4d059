"""`kb status`, `kb version` and `kb settings`: what runs, and how it is set up."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _read_installed_version
from typing import TYPE_CHECKING

import typer

from kb.cli.session import ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from kb.schemas import CollectionOut, ReadyOut
    from kb.settings import Settings

_SECRET_FIELDS = ("api_key", "generator_api_key")
_URL_FIELDS = ("database_url", "redis_url", "chroma_url", "generator_url", "api_url")
_MASK = "••••••"


def read_version() -> str:
    """Return the installed version."""
    try:
        return _read_installed_version("kb")
    except PackageNotFoundError:
        return "unknown"


def version(as_json: JsonOption = False) -> None:
    """Print the version."""
    from kb.cli.output import get_console, print_json

    if as_json:
        print_json({"version": read_version()})
    else:
        get_console().print(f"kb {read_version()}", highlight=False)


def status(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show whether each part answers, and what the collections hold.

    The exit code is 1 while the service is not ready, 3 when it does not answer at all.
    """
    from kb.cli.output import print_json

    with get_session(ctx).open_client() as client:
        live = client.get_live()
        ready = client.get_ready()
        collections = client.list_collections() if ready.ready else []
        if as_json:
            print_json(
                {
                    "url": client.url,
                    "version": live.version,
                    **ready.model_dump(mode="json"),
                    "collections": [item.model_dump(mode="json") for item in collections],
                }
            )
        else:
            _print_status(client.url, live.version, ready, collections)
    if not ready.ready:
        raise typer.Exit(ExitCode.FAILED)


def _print_status(url: str, version: str, ready: ReadyOut, collections: list[CollectionOut]) -> None:
    from rich.markup import escape

    from kb.cli.output import get_console, make_table

    console = get_console()
    state = "[bold green]ready[/]" if ready.ready else "[bold red]not ready[/]"
    console.print(f"[bold]{escape(url)}[/]  {state}  [dim]version {escape(version)}[/]", highlight=False)
    table = make_table("part", "state", "detail")
    for item in ready.dependencies:
        bad = "[bold red]down[/]" if item.required else "[yellow]down, not required[/]"
        table.add_row(escape(item.name), "[green]ok[/]" if item.ok else bad, escape(item.detail))
    console.print(table)
    if collections:
        table = make_table("collection", ">documents", ">chunks")
        for found in collections:
            table.add_row(escape(found.name), f"{found.document_count:,}", f"{found.chunk_count:,}")
        console.print(table)
    if not ready.ready:
        console.print(
            "[bold]Next[/]  Read the logs in the data folder's `logs`, or start again with `kb up`."
        )


def settings(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the effective settings and what each means; keys and passwords are masked."""
    from rich.markup import escape

    from kb.cli.output import get_console, make_table, print_json
    from kb.settings import ENV_PREFIX

    loaded = get_session(ctx).load_settings()
    values = mask_settings(loaded)
    if as_json:
        print_json(dict(values))
        return
    table = make_table("setting", "value", "meaning")
    for name, field in type(loaded).model_fields.items():
        value = values[name]
        changed = name in loaded.model_fields_set
        shown = "–" if value is None else escape(str(value))
        table.add_row(
            f"{ENV_PREFIX}{name.upper()}",
            f"[bold green]{shown}[/]" if changed else shown,
            f"[dim]{escape(field.description or '')}[/]",
        )
    console = get_console()
    console.print(table)
    console.print("[dim]Green values differ from the defaults by environment or file.[/]")


def mask_settings(loaded: Settings) -> dict[str, str | int | float | bool | None]:
    """Return each setting as a plain value, without keys and passwords."""
    values = loaded.model_dump(mode="json")
    for name in _SECRET_FIELDS:
        if values[name]:
            values[name] = _MASK
    for name in _URL_FIELDS:
        if values[name]:
            values[name] = mask_url(values[name])
    return values


def mask_url(url: str) -> str:
    """Return the URL with its password masked, if it has one."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    credentials, at, host = place.rpartition("@")
    user, colon, password = credentials.partition(":")
    if not password:
        return url
    return f"{scheme}{separator}{user}{colon}{_MASK}{at}{host}{slash}{path}"
