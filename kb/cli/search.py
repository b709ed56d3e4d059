"""`kb search`: the best passages without an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kb.cli.scoping import (
    BeforeOption,
    DocumentsOption,
    FromOption,
    LanguageOption,
    TagsOption,
    build_scope,
)
from kb.cli.session import CollectionOption, JsonOption, get_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.schemas import PassageOut


def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="Words, a code, or a whole question.")],
    *,
    collection: CollectionOption = "default",
    top_k: Annotated[
        int | None, typer.Option("--top-k", "-k", min=1, max=50, help="How many passages.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show whole passages, not excerpts.")] = False,
    mode: Annotated[
        Literal["hybrid", "dense", "lexical"],
        typer.Option(help="How answers are found, or one index alone: vectors or words."),
    ] = "hybrid",
    documents: DocumentsOption = None,
    tags: TagsOption = None,
    language: LanguageOption = None,
    since: FromOption = None,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the passages nearest to a query, with their pages and scores."""
    from kb.cli.output import get_console, print_json
    from kb.language import detect_language

    scope = build_scope(documents=documents, tags=tags, language=language, since=since, before=before)
    with get_session(ctx).open_client() as client:
        found = client.search(query, collection=collection, top_k=top_k, mode=mode, scope=scope)
    if as_json:
        print_json(found)
        return
    console = get_console()
    if not found.passages:
        console.print(f"Nothing found in the collection {collection!r}.", highlight=False)
        return
    print_passages(console, found.passages, language=detect_language(query), lines=None if full else 3)
    if found.evidence is not None:
        needed = "" if found.threshold is None else f", an answer needs {found.threshold:.2f}"
        console.print(f"[dim]evidence {found.evidence:.2f} of 1{needed}[/]", highlight=False)
    if found.calibration_stale:
        console.print(
            "The collection's own threshold was measured with another embedder, reranker or chunker and is "
            "left aside; `kb calibrate` measures it anew.",
            style="yellow",
            highlight=False,
        )


def print_passages(
    console: Console, passages: Sequence[PassageOut], *, language: str, lines: int | None, scores: bool = True
) -> None:
    """Print each passage: rank, document, page, headings, scores, then its text."""
    from rich.markup import escape
    from rich.padding import Padding
    from rich.text import Text

    from kb.cli.output import cut, format_place

    for passage in passages:
        name = f"[bold cyan]{escape(passage.document_name)}[/]"
        place = format_place(name, passage.page_start, passage.page_end, language)
        headings = " › ".join(passage.heading_path)
        console.print(
            f"[bold]{passage.rank + 1:>2}[/]  {place}"
            + (f"  [dim]{escape(headings)}[/]" if headings else ""),
            highlight=False,
        )
        if scores:
            shown = "  ".join(f"{name} {value:.3g}" for name, value in sorted(passage.scores.items()))
            console.print(f"    [dim]score {passage.score:.4f}  {escape(shown)}[/]", highlight=False)
        text = passage.text if lines is None else cut(passage.text, lines * (console.width - 5))
        console.print(Padding(Text(text), (0, 0, 1, 4)))
