"""`kb documents …`: list, show, delete, text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import CollectionOption, JsonOption, get_session

if TYPE_CHECKING:
    from kb.schemas import DocumentDetailOut, DocumentOut

app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="List, show, read and delete documents."
)

_Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the document, from `kb documents list`.")]


@app.command("list")
def list_documents(
    ctx: typer.Context,
    collection: CollectionOption = "default",
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only this state, such as failed.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the documents of a collection."""
    from rich.markup import escape

    from kb.cli.output import format_size, paint_state, print_json, print_rows
    from kb.schemas import DocumentsOut

    with get_session(ctx).open_client() as client:
        found = list(client.iter_documents(collection, state=state))
    if as_json:
        print_json(DocumentsOut(documents=found))
        return
    has_attachments = any(item.parent_id for item in found)
    print_rows(
        (
            *("document", ">pages", ">chunks", ">size", "state", "id"),
            *(["attached to"] if has_attachments else []),
        ),
        [
            (
                escape(item.name),
                str(item.page_count or "–"),
                str(item.chunk_count or "–"),
                format_size(item.size_bytes),
                paint_state(item.state),
                f"[dim]{escape(item.id)}[/]",
                *([f"[dim]{escape(item.parent_id or '')}[/]"] if has_attachments else []),
            )
            for item in found
        ],
        empty="No documents here yet; add some with `kb ingest PATH…`.",
    )


@app.command("tag")
def tag(
    ctx: typer.Context,
    document_id: _Id,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG]…", help="None takes all away.")] = None,
    collection: CollectionOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Give a document these tags in place of former ones; searches can be limited to tags."""
    from kb.cli.output import get_console, print_json

    with get_session(ctx).open_client() as client:
        found = client.set_tags(collection, document_id, tags or [])
    if as_json:
        print_json(found)
    else:
        get_console().print(
            f"{found.name}: {', '.join(found.tags) or 'no tags'}", highlight=False, markup=False
        )


@app.command("show")
def show(
    ctx: typer.Context,
    document_id: _Id,
    collection: CollectionOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show one document: its state, its problems and how well each page was read."""
    from kb.cli.output import print_json

    with get_session(ctx).open_client() as client:
        found = client.get_document(collection, document_id)
        attached = [] if as_json else list(client.iter_documents(collection, parent_id=document_id))
    if as_json:
        print_json(found)
    else:
        _print_detail(found)
        _print_attached(attached)


def _print_detail(found: DocumentDetailOut) -> None:
    from rich.markup import escape

    from kb.cli.output import format_size, get_console, make_table, paint_state

    console = get_console()
    console.print(f"[bold cyan]{escape(found.name)}[/]  {paint_state(found.state)}", highlight=False)
    facts = (
        ("title", found.title),
        ("collection", found.collection),
        ("type", found.media_type),
        ("size", format_size(found.size_bytes)),
        ("pages", str(found.page_count)),
        ("chunks", str(found.chunk_count)),
        ("attempts", str(found.attempt)),
        ("added", f"{found.created_at.astimezone():%Y-%m-%d %H:%M:%S}"),
        ("id", found.id),
        ("attached to", found.parent_id or ""),
        ("job", found.job_id),
        ("sha256", found.sha256),
    )
    for name, value in facts:
        if value:
            console.print(f"  [dim]{name:<12}[/]{escape(value)}", highlight=False, soft_wrap=True)
    for problem, style in [(found.error, "bold red"), *((item, "yellow") for item in found.warnings)]:
        if problem is not None:
            console.print(f"  [{style}]{escape(problem.code)}[/] {escape(problem.message)}", highlight=False)
            if problem.next_step:
                console.print(f"    [dim]→[/] {escape(problem.next_step)}", highlight=False)
    if found.pages:
        table = make_table(">page", "read as", ">words", ">tables", ">undecodable", ">OCR", "warnings")
        for page in found.pages:
            confidence = page.ocr_confidence
            table.add_row(
                str(page.page_number),
                page.source,
                str(page.word_count),
                str(page.table_count or "–"),
                f"{page.undecodable_share:.1%}" if page.undecodable_share else "–",
                "–" if confidence is None else f"{confidence:.0%}",
                escape(", ".join(page.warnings)),
            )
        console.print(table)


def _print_attached(attached: list[DocumentOut]) -> None:
    from rich.markup import escape

    from kb.cli.output import get_console, make_table, paint_state

    if not attached:
        return
    table = make_table("attached", "state", "id")
    for item in attached:
        table.add_row(escape(item.name), paint_state(item.state), f"[dim]{escape(item.id)}[/]")
    get_console().print(table)


@app.command("text")
def text(
    ctx: typer.Context,
    document_id: _Id,
    page: Annotated[int | None, typer.Option("--page", "-p", min=1, help="Only this page.")] = None,
    collection: CollectionOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Print the stored text, as it is searched and cited."""
    from kb.cli.output import get_console, print_json

    with get_session(ctx).open_client() as client:
        if page is not None:
            numbers = [page]
        else:
            numbers = [item.page_number for item in client.get_document(collection, document_id).pages]
        pages = [client.get_page(collection, document_id, number) for number in numbers]
    if as_json:
        print_json({"pages": [item.model_dump(mode="json") for item in pages]})
        return
    console = get_console()
    for found in pages:
        if len(pages) > 1:
            console.rule(f"page {found.page_number}", style="dim", align="left")
        console.print(found.text, markup=False, highlight=False, soft_wrap=True)


@app.command("delete")
def delete(
    ctx: typer.Context,
    document_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of the documents.")],
    collection: CollectionOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Delete documents and every trace of them."""
    from kb.cli.output import get_console, print_json

    with get_session(ctx).open_client() as client:
        for document_id in document_ids:
            client.delete_document(collection, document_id)
            if not as_json:
                get_console().print(f"Deleted {document_id}.", highlight=False, markup=False)
    if as_json:
        print_json({"deleted": document_ids})
