"""`kb explain`: at which stage a question lost the page that should have answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import CollectionOption, JsonOption, get_session

if TYPE_CHECKING:
    from kb.schemas import ExplainedChunkOut

_SHOWN = 5

_FATES = {
    "not_searchable": "the document is not ready, so nothing of it is searched",
    "no_text": "the page holds nothing that is searched",
    "candidates": "no index found it near enough to be looked at",
    "fusion": "it was looked at, and other passages ranked better",
    "reranking": "codes of the question or the reranker put others ahead",
    "repeated": "a better passage says the same",
    "gate": "it was found, but the evidence is too little or a code is unknown: no answer",
    "language": "it was found, but the evidence is in the other language",
    "budget": "it was found, but the prompt had no room for it",
    "used": "it is among the passages that the answer is made from",
}


def explain(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="The question as it was asked.")],
    document: Annotated[
        str, typer.Argument(metavar="DOCUMENT", help="Name or id of the document that should answer it.")
    ],
    *,
    page: Annotated[
        int | None, typer.Option("--page", "-p", min=1, help="The page, from 1; else the whole document.")
    ] = None,
    collection: CollectionOption = "default",
    top_k: Annotated[
        int | None, typer.Option("--top-k", "-k", min=1, max=50, help="How many passages are considered.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what became of a document or page: its rank and score at each stage, and which one lost it."""
    from rich.markup import escape

    from kb.cli.output import get_console, print_json, print_rows

    with get_session(ctx).open_client() as client:
        found = client.explain(question, document=document, page=page, collection=collection, top_k=top_k)
    if as_json:
        print_json(found)
        return
    console = get_console()
    console.print(
        f"[bold]{escape(found.document_name)}[/]: {found.fate}, {_FATES.get(found.fate, found.fate)}",
        highlight=False,
    )
    console.print(
        f"[dim]evidence {found.evidence:.2f}, an answer needs {found.threshold:.2f}[/]"
        + (f"  unknown codes: {escape(', '.join(found.unknown_codes))}" if found.unknown_codes else ""),
        highlight=False,
    )
    if not found.chunks:
        return
    print_rows(
        (">page", "fate", ">dense", ">BM25", ">fused", ">ranked", ">result", "scores"),
        [_list_cells(item) for item in found.chunks[:_SHOWN]],
        empty="",
    )
    if len(found.chunks) > _SHOWN:
        console.print(f"[dim]{len(found.chunks) - _SHOWN} more chunks; --json shows all.[/]", highlight=False)


def _list_cells(item: ExplainedChunkOut) -> tuple[str, ...]:
    ranks = (
        item.alone.get("dense"),
        item.alone.get("lexical"),
        *(item.ranks.get(name) for name in ("fused", "ranked", "result")),
    )
    shown = ("dense", "lexical", "exact", "fused", "rerank")
    return (
        str(item.page_start),
        item.fate,
        *("–" if rank is None else str(rank + 1) for rank in ranks),
        "  ".join(f"{name} {item.scores[name]:.3g}" for name in shown if name in item.scores),
    )
