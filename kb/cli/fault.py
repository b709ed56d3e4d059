"""`kb fault`: a fault code, or a symptom in words, as fields with document and page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import CollectionOption, JsonOption, get_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.schemas import FaultOut

_MOST_MENTIONS = 5

_LABELS = {
    "en": {
        "description": "Fault",
        "cause": "Cause",
        "remedy": "Remedy",
        "source": "Source",
        "text": "Text",
        "mentions": "Also mentioned",
    },
    "zh": {
        "description": "现象",
        "cause": "原因",
        "remedy": "处理",
        "source": "来源",
        "text": "原文",
        "mentions": "其他提及",
    },
}


def fault(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="CODE|SYMPTOM", help='A code ("E-0471") or a symptom ("油温过高").')
    ],
    *,
    collection: CollectionOption = "default",
    top_k: Annotated[
        int | None, typer.Option("--top-k", "-k", min=1, max=50, help="How many faults are shown.")
    ] = None,
    by_symptom: Annotated[
        bool | None,
        typer.Option(
            "--symptom/--code",
            help="Take it for a symptom or a code; else a word with a digit or in capitals is a code.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a fault is, why it occurs and what to do, from the documents and without a model.

    A code that no document has ends with exit code 4 and names the nearest codes that exist. A symptom
    that nothing fits gives an empty list and exit code 0.
    """
    from kb.cli.output import get_console, print_json
    from kb.codes import is_code_like

    search = not is_code_like(what) if by_symptom is None else by_symptom
    console = get_console()
    with get_session(ctx).open_client() as client:
        if search:
            found = client.search_faults(what, collection=collection, top_k=top_k)
            if as_json:
                print_json(found)
            elif found.faults:
                print_faults(console, found.faults)
            else:
                console.print(_explain_nothing(found.unknown_codes, collection), highlight=False)
            return
        known = client.look_up_fault(what, collection=collection, limit=top_k)
    if as_json:
        print_json(known)
        return
    print_faults(console, known.faults)
    if known.total > len(known.faults):
        console.print(
            f"[dim]{len(known.faults)} of {known.total} shown; --top-k shows more.[/]", highlight=False
        )


def _explain_nothing(unknown_codes: Sequence[str], collection: str) -> str:
    from rich.markup import escape

    if unknown_codes:
        return escape(
            f"No document in the collection {collection!r} has the code {', '.join(unknown_codes)}."
        )
    return escape(
        f"No fault in the collection {collection!r} fits. `kb search` finds passages on anything else."
    )


def print_faults(console: Console, faults: Sequence[FaultOut]) -> None:
    """Print each row and section as a panel in its own language, then mere mentions, a line each."""
    from rich.markup import escape

    from kb.cli.output import cut
    from kb.language import detect_language

    mentions = [fault for fault in faults if fault.kind == "mention"]
    for fault in faults:
        if fault.kind != "mention":
            _print_panel(console, fault)
    for number, fault in enumerate(mentions[:_MOST_MENTIONS]):
        labels = _LABELS[detect_language(fault.quote)]
        if not number:
            console.print(f"[bold]{labels['mentions']}[/]", highlight=False)
        console.print(
            f"  {_format_source(fault)}  [dim]{escape(cut(fault.quote, console.width - 40))}[/]",
            highlight=False,
        )
    if len(mentions) > _MOST_MENTIONS:
        console.print(f"[dim]  … {len(mentions) - _MOST_MENTIONS} more[/]", highlight=False)


def _print_panel(console: Console, fault: FaultOut) -> None:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from kb.language import detect_language

    labels = _LABELS[detect_language(fault.quote)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name in ("description", "cause", "remedy"):
        value = str(getattr(fault, name))
        if value:
            grid.add_row(labels[name], Text(value))
    fields = (fault.code, fault.description, fault.cause, fault.remedy)
    told = {*fields, *(line for value in fields for line in value.split("\n"))}
    if fault.kind == "row":
        for column, cell in fault.record.items():
            if cell.strip() and cell.strip() not in told:
                grid.add_row(Text(column, style="dim"), Text(cell.strip(), style="dim"))
    elif not (fault.cause or fault.remedy):
        grid.add_row(labels["text"], Text(fault.quote))
    grid.add_row(labels["source"], _format_source(fault))
    title = Text(fault.code or " › ".join(fault.heading_path[-1:]), style="bold")
    if fault.score is not None:
        title.append(f"  {fault.score:.2f}", style="dim")
    console.print(Panel(grid, title=title, title_align="left"))


def _format_source(fault: FaultOut) -> str:
    from rich.markup import escape

    from kb.cli.output import format_place
    from kb.language import detect_language

    name, page = f"[cyan]{escape(fault.document_name)}[/]", fault.page_number
    return format_place(name, page, page, detect_language(fault.quote))
