"""`kb collections …`: list, create, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from kb.cli.session import JsonOption, get_session

app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="List, create and delete collections."
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the collection.")]


@app.command("list")
def list_collections(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List all collections with their counts."""
    from rich.markup import escape

    from kb.cli.output import print_json, print_rows
    from kb.schemas import CollectionsOut

    with get_session(ctx).open_client() as client:
        found = client.list_collections()
    if as_json:
        print_json(CollectionsOut(collections=found))
        return
    print_rows(
        ("collection", ">documents", ">chunks", "created"),
        [
            (
                escape(item.name),
                f"{item.document_count:,}",
                f"{item.chunk_count:,}",
                f"{item.created_at.astimezone():%Y-%m-%d %H:%M}",
            )
            for item in found
        ],
        empty="There are no collections yet; `kb ingest` creates one.",
    )


@app.command("create")
def create(ctx: typer.Context, name: _Name, as_json: JsonOption = False) -> None:
    """Create an empty collection."""
    from kb.cli.output import get_console, print_json

    with get_session(ctx).open_client() as client:
        created = client.create_collection(name)
    if as_json:
        print_json(created)
    else:
        get_console().print(f"Created the collection {created.name!r}.", highlight=False, markup=False)


@app.command("delete")
def delete(
    ctx: typer.Context,
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a collection with all its documents. Asks first, unless --yes or --json is given."""
    from kb.cli.output import get_console, print_json

    with get_session(ctx).open_client() as client:
        found = client.get_collection(name)
        if not (yes or as_json):
            typer.confirm(f"Delete {found.name!r} with {found.document_count} documents?", abort=True)
        client.delete_collection(name)
    if as_json:
        print_json({"deleted": name})
    else:
        get_console().print(f"Deleted the collection {name!r}.", highlight=False, markup=False)
