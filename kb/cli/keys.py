"""`kb keys …` and `kb audit`: who may use the service, and who did what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import JsonOption, get_session

if TYPE_CHECKING:
    from datetime import datetime

    from kb.schemas import KeyOut, NewKeyOut

app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Create, list, replace and revoke API keys."
)

_Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the key, from `kb keys list`.")]


@app.command("create")
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use the key.")],
    role: Annotated[
        str,
        typer.Option(
            "--role", "-r", metavar="ROLE", help="`reader` (asks), `editor` (also uploads) or `admin`."
        ),
    ] = "reader",
    *,
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", metavar="NAME", help="Only this one; may be repeated."),
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", min=1, max=3650, help="Let it end after N days.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print its secret, once.

    The first key must be an administrator's; from then on every request needs a key. The kb command
    sends the one in KB_API_KEY.
    """
    from datetime import UTC, datetime, timedelta

    end = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with get_session(ctx).open_client() as client:
        created = client.create_key(name, role=role, collections=collection or None, expires_at=end)
    _print_secret(created, as_json=as_json)


@app.command("list")
def list_keys(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List all keys, ended ones too, oldest first."""
    from rich.markup import escape

    from kb.cli.output import print_json, print_rows
    from kb.schemas import KeysOut

    with get_session(ctx).open_client() as client:
        found = client.list_keys()
    if as_json:
        print_json(KeysOut(keys=found))
        return
    print_rows(
        ("name", "role", "collections", "begins with", "state", "created", "id"),
        [
            (
                escape(item.name),
                item.role,
                "all" if item.collections is None else escape(", ".join(item.collections)),
                escape(item.hint) + "…",
                _describe_state(item),
                f"{item.created_at.astimezone():%Y-%m-%d}",
                f"[dim]{escape(item.id)}[/]",
            )
            for item in found
        ],
        empty="No keys yet: only this machine may use the service. "
        "Create the first with `kb keys create NAME --role admin`.",
    )


@app.command("rotate")
def rotate(
    ctx: typer.Context,
    key_id: _Id,
    grace_hours: Annotated[
        int,
        typer.Option(
            "--grace-hours", metavar="N", min=0, max=720, help="Keep the old key valid for N hours."
        ),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Replace a key by one with the same rights, and print the new secret, once."""
    with get_session(ctx).open_client() as client:
        created = client.rotate_key(key_id, grace_s=grace_hours * 3600)
    _print_secret(created, as_json=as_json)


@app.command("revoke")
def revoke(ctx: typer.Context, key_id: _Id, as_json: JsonOption = False) -> None:
    """End a key within two seconds."""
    from kb.cli.output import get_console, print_json

    with get_session(ctx).open_client() as client:
        client.revoke_key(key_id)
    if as_json:
        print_json({"revoked": key_id})
    else:
        get_console().print(f"Revoked {key_id}.", highlight=False, markup=False)


def audit(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Print the audit log, oldest first; with --json one event a line."""
    from rich.markup import escape

    from kb.cli.output import print_rows

    with get_session(ctx).open_client() as client:
        events = client.iter_audit()
        if as_json:
            for event in events:
                typer.echo(event.model_dump_json())
            return
        print_rows(
            ("when", "who", "what", "collection", "which", "from"),
            [
                (
                    f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}",
                    escape(event.caller_name),
                    escape(event.action),
                    escape(event.collection),
                    escape(event.detail.get("name") or event.target),
                    escape(event.address),
                )
                for event in events
            ],
            empty="Nothing was changed yet.",
        )


def _describe_state(key: KeyOut) -> str:
    if key.revoked_at is not None:
        return "[red]revoked[/]" if not key.active else f"until {_show_time(key.revoked_at)}"
    if key.expires_at is not None:
        return f"until {_show_time(key.expires_at)}" if key.active else "[red]expired[/]"
    return "[green]valid[/]"


def _show_time(when: datetime) -> str:
    return f"{when.astimezone():%Y-%m-%d %H:%M}"


def _print_secret(created: NewKeyOut, *, as_json: bool) -> None:
    from kb.cli.output import get_console, print_json

    if as_json:
        print_json(created)
        return
    key = created.key
    scope = "all collections" if key.collections is None else ", ".join(key.collections)
    end = "" if key.expires_at is None else f", until {_show_time(key.expires_at)}"
    console = get_console()
    console.print(f"Key for {key.name!r}: {key.role} of {scope}{end}", highlight=False, markup=False)
    console.print(created.secret, highlight=False, markup=False, soft_wrap=True)
    console.print(
        "It is shown this once. Clients send it as `Authorization: Bearer KEY`; the kb command takes it "
        "from KB_API_KEY.",
        highlight=False,
        markup=False,
    )
