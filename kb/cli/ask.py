"""`kb ask`: a cited answer, printed while it is written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

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
from kb.presets import DEFAULT_PRESET, PresetName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.client import KbClient
    from kb.schemas import AnswerOut, MessageIn, ScopeIn

_QUOTE_LINES = 5

_LABELS = {
    "en": {
        "sources": "Sources",
        "nearest": "Nearest passages (not an answer)",
        "refused": "Not answered",
        "empty_collection": "the collection holds no documents yet",
        "code_unknown": "this code stands in no document",
        "below_threshold": "no passage is close enough to the question",
        "not_stated": "the passages found do not state it",
        "query": "Searched for",
        "unsupported": "the draft was not supported by the passages",
    },
    "zh": {
        "sources": "来源",
        "nearest": "最接近的段落（不作为答案）",
        "refused": "未作答",
        "empty_collection": "该文档集还没有文档",
        "code_unknown": "任何文档中都没有这个代码",
        "below_threshold": "没有与问题足够接近的段落",
        "not_stated": "找到的段落没有说明这一点",
        "query": "检索问题",
        "unsupported": "草拟的回答没有得到段落的支持",
    },
}


def ask(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="The question, in Chinese or English.")],
    *,
    collection: CollectionOption = "default",
    top_k: Annotated[
        int | None, typer.Option("--top-k", "-k", min=1, max=50, help="How many passages are considered.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, max=8192, help="Longest answer in tokens.")
    ] = None,
    preset: Annotated[PresetName, typer.Option("--preset", help="Kind of task.")] = DEFAULT_PRESET,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after", metavar="QUESTION", help="An earlier question that this one follows; repeatable."
        ),
    ] = None,
    think: Annotated[
        bool, typer.Option("--think", help="Let the model think before it answers, if it can.")
    ] = False,
    documents: DocumentsOption = None,
    tags: TagsOption = None,
    language: LanguageOption = None,
    since: FromOption = None,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question from the documents, with the quoted line and page behind each statement.

    A refusal ("the documents do not say") is a valid answer: the exit code is 0, and with --json the
    field `refused` is true.
    """
    from kb.cli.output import get_console, print_json
    from kb.schemas import MessageIn

    options: dict[str, Any] = {
        "collection": collection,
        "top_k": top_k,
        "max_tokens": max_tokens,
        "preset": preset,
        "think": think,
        "scope": build_scope(documents=documents, tags=tags, language=language, since=since, before=before),
        "history": [MessageIn(role="user", content=earlier) for earlier in after or ()],
    }
    with get_session(ctx).open_client() as client:
        if as_json:
            print_json(client.ask(question, **options))
            return
        print_answer(get_console(), client, question, **options)


def print_answer(
    console: Console,
    client: KbClient,
    question: str,
    *,
    collection: str,
    top_k: int | None = None,
    max_tokens: int | None = None,
    preset: PresetName = DEFAULT_PRESET,
    think: bool = False,
    scope: ScopeIn | None = None,
    history: Sequence[MessageIn] = (),
) -> AnswerOut:
    """Stream one answer to the console, then its sources, and return it."""
    from kb.cli.output import StreamPrinter
    from kb.client import AskDelta

    started = time.monotonic()
    printer = StreamPrinter(console)
    answer: AnswerOut | None = None
    waiting = console.status("[dim]reading the documents…[/]", spinner="dots")
    waiting.start()
    try:
        for event in client.stream(
            question,
            collection=collection,
            top_k=top_k,
            max_tokens=max_tokens,
            preset=preset,
            think=think,
            scope=scope,
            history=history,
        ):
            waiting.stop()
            if isinstance(event, AskDelta):
                printer.write(event.text)
            else:
                answer = event.answer
    finally:
        waiting.stop()
        printer.finish()
    assert answer is not None  # the stream ends with it or raises
    print_sources(console, answer, elapsed_s=time.monotonic() - started)
    return answer


def print_sources(console: Console, answer: AnswerOut, *, elapsed_s: float) -> None:
    """Print what stands behind an answer: citations or nearest passages, notices, how it was made."""
    from rich.markup import escape
    from rich.padding import Padding
    from rich.text import Text

    from kb.cli.output import cut, format_duration, format_place
    from kb.cli.search import print_passages

    labels = _LABELS.get(answer.language, _LABELS["en"])
    if answer.refusal is not None:
        reason = labels.get(answer.refusal.reason, answer.refusal.reason)
        console.print(f"\n[bold yellow]{labels['refused']}[/] [dim]· {escape(reason)}[/]", highlight=False)
        if answer.refusal.nearest:
            console.print(f"\n[bold]{labels['nearest']}[/]", highlight=False)
            print_passages(
                console, answer.refusal.nearest[:3], language=answer.language, lines=2, scores=False
            )
    if answer.citations:
        console.print(f"\n[bold]{labels['sources']}[/]", highlight=False)
        for citation in answer.citations:
            place = format_place(
                f"[cyan]{escape(citation.document_name)}[/]",
                citation.page_number,
                citation.page_number,
                answer.language,
            )
            console.print(f" [bold green]\\[{citation.number}][/] {place}", highlight=False)
            quote = cut(citation.quote, _QUOTE_LINES * (console.width - 8))
            console.print(Padding(Text(f"“{quote}”", style="italic"), (0, 0, 0, 5)))
    for notice in answer.notices:
        console.print(f"[yellow]![/] {escape(notice)}", highlight=False)
    if answer.query and answer.query != answer.question:
        console.print(f"[dim]{labels['query']}: {escape(answer.query)}[/]", highlight=False)
    made = [*dict.fromkeys((answer.mode, answer.model)), format_duration(elapsed_s), answer.id]
    if answer.finish_reason == "length":
        made.append("cut at the token limit")
    console.print(f"[dim]{escape(' · '.join(part for part in made if part))}[/]", highlight=False)
