"""`kb eval`: asks questions whose evidence is known, and measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kb.cli.session import CollectionOption, ExitCode, get_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.client import KbClient
    from kb.evaluation import Metrics, Outcome, Question
    from kb.schemas import AnswerOut, CitationOut, PassageOut

_RETRIEVED = 10


def _remember_json(ctx: typer.Context, value: str | None) -> str | None:
    if value == "-":
        get_session(ctx).json = True
    return value


def evaluate(
    ctx: typer.Context,
    questions: Annotated[
        Path, typer.Argument(metavar="QUESTIONS.toml", exists=True, dir_okay=False, help="File of questions.")
    ],
    *,
    collection: CollectionOption = "default",
    answers: Annotated[
        bool, typer.Option("--answers/--no-answers", help="Ask, too, or measure retrieval alone.")
    ] = True,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 if any question missed.")] = False,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            callback=_remember_json,
            help="Write all results as JSON to FILE; - is standard output, then nothing else is printed.",
        ),
    ] = None,
) -> None:
    """Measure retrieval, refusals and citations on questions whose evidence is known.

    A question is ok when a page that holds its answer is among the first five passages (every one
    for a question that spans documents) and it was answered; or when no document answers it and it
    was refused.
    """
    from rich.console import Console

    from kb.cli.output import get_console
    from kb.evaluation import load_questions, summarise

    loaded = load_questions(questions)
    to_stdout = json_file == "-"
    console = Console(quiet=True) if to_stdout else get_console()
    with get_session(ctx).open_client() as client:
        outcomes = measure(client, loaded, collection=collection, answers=answers, console=console)
    metrics = summarise(outcomes)
    print_outcomes(console, outcomes)
    print_metrics(console, metrics)
    if json_file is not None:
        report = json.dumps(describe(outcomes, metrics), ensure_ascii=False, indent=2) + "\n"
        if to_stdout:
            typer.echo(report, nl=False)
        else:
            Path(json_file).write_text(report, encoding="utf-8")
            console.print(f"[dim]Written to {json_file}[/]", highlight=False)
    if strict and metrics.ok < metrics.judged:
        raise typer.Exit(ExitCode.FAILED)


def measure(
    client: KbClient, questions: Sequence[Question], *, collection: str, answers: bool, console: Console
) -> list[Outcome]:
    """Put each question to the service and return what it did."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kb.cli.output import pad

    pages = _PageTexts(client, collection)
    outcomes: list[Outcome] = []
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        bar = progress.add_task("", total=len(questions))
        for question in questions:
            progress.update(bar, description=pad(question.text, 40))
            passages = client.search(question.text, collection=collection, top_k=_RETRIEVED).passages
            answer = client.ask(question.text, collection=collection) if answers else None
            outcomes.append(judge(question, passages, answer, pages))
            progress.advance(bar)
    return outcomes


def judge(
    question: Question, passages: Sequence[PassageOut], answer: AnswerOut | None, pages: _PageTexts
) -> Outcome:
    """Compare what was retrieved and answered with what was expected."""
    from kb.evaluation import Outcome, contains_answer

    retrieved = tuple(
        frozenset((passage.document_name, span.page_number) for span in passage.spans) for passage in passages
    )
    if answer is None:
        return Outcome(question, retrieved)
    texts = [answer.answer, *(citation.quote for citation in answer.citations)]
    return Outcome(
        question,
        retrieved,
        refused=answer.refused,
        mode=answer.mode,
        citations=len(answer.citations),
        exact_citations=sum(1 for citation in answer.citations if pages.holds(citation)),
        answer_found=contains_answer(question.answers, texts),
    )


class _PageTexts:
    """Stored page texts, each fetched once."""

    def __init__(self, client: KbClient, collection: str) -> None:
        self._client = client
        self._collection = collection
        self._texts = dict[tuple[str, int], str]()

    def holds(self, citation: CitationOut) -> bool:
        """Return whether the quote is exactly the slice of the page that the citation names."""
        from kb.client import ClientError
        from kb.evaluation import is_exact_quote

        key = (citation.document_id, citation.page_number)
        if key not in self._texts:
            try:
                page = self._client.get_page(self._collection, *key)
            except ClientError as error:
                if error.status != 404:
                    raise
                return False
            self._texts[key] = page.text
        return is_exact_quote(
            self._texts[key],
            quote=citation.quote,
            char_start=citation.char_start,
            char_end=citation.char_end,
        )


def print_outcomes(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print one row per question: rank of its evidence, exact of all quotes, expected text found."""
    from rich.markup import escape

    from kb.cli.output import cut, make_table

    asked = any(outcome.refused is not None for outcome in outcomes)
    columns = ["", "question", "kind", ">rank"]
    columns += ["answer", ">quotes", "text"] if asked else []
    table = make_table(*columns)
    for outcome in outcomes:
        question = outcome.question
        rank = "–" if outcome.first_rank is None else str(outcome.first_rank + 1)
        cells = [
            {True: "[green]ok[/]", False: "[bold red]miss[/]", None: "[dim]–[/]"}[outcome.ok],
            f"{escape(cut(question.text, 44))}\n[dim]{escape(question.id)}[/]",
            question.kind,
            rank if question.answerable else "[dim]–[/]",
        ]
        if asked:
            found = {True: "[green]yes[/]", False: "[yellow]no[/]", None: "–"}[outcome.answer_found]
            mode = escape(outcome.mode or "–")
            cells += [
                f"[yellow]{mode}[/]" if outcome.refused else mode,
                f"{outcome.exact_citations}/{outcome.citations}" if outcome.citations else "–",
                found if question.answers and question.answerable else "–",
            ]
        table.add_row(*cells)
    console.print(table)


_METRIC_LABELS = {
    "hit_at_1": "evidence on rank 1 (hit@1)",
    "hit_at_5": "evidence in the top 5 (hit@5)",
    "recall_at_5": "share of evidence in the top 5 (recall@5)",
    "mrr_at_10": "MRR@10",
    "ndcg_at_10": "nDCG@10",
    "refusal_precision": "refusals that were right",
    "refusal_recall": "unanswerable questions refused",
    "citation_validity": "citations exact on their page",
    "answer_match": "answers with an expected text",
}


def print_metrics(console: Console, metrics: Metrics) -> None:
    """Print the means."""
    from kb.cli.output import make_table

    table = make_table("measure", ">value")
    for name, label in _METRIC_LABELS.items():
        value = getattr(metrics, name)
        if value is not None:
            table.add_row(label, f"{value:.3f}")
    console.print(table)
    style = "green" if metrics.ok == metrics.judged else "yellow"
    console.print(f"[bold {style}]{metrics.ok} of {metrics.judged} questions ok[/]", highlight=False)


def describe(outcomes: Sequence[Outcome], metrics: Metrics) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "questions": metrics.questions,
        "judged": metrics.judged,
        "ok": metrics.ok,
        "retrieval": {
            "hit@1": metrics.hit_at_1,
            "hit@5": metrics.hit_at_5,
            "recall@5": metrics.recall_at_5,
            "mrr@10": metrics.mrr_at_10,
            "ndcg@10": metrics.ndcg_at_10,
        },
        "refusal": {"precision": metrics.refusal_precision, "recall": metrics.refusal_recall},
        "citations": {"count": metrics.citations, "valid": metrics.citation_validity},
        "answers": {"match": metrics.answer_match},
        "outcomes": [
            {
                "id": item.question.id,
                "lang": item.question.lang,
                "kind": item.question.kind,
                "ok": item.ok,
                "rank": None if item.first_rank is None else item.first_rank + 1,
                "refused": item.refused,
                "mode": item.mode,
                "citations": item.citations,
                "exact_citations": item.exact_citations,
                "answer_found": item.answer_found,
                "retrieved": [sorted([name, page] for name, page in places) for places in item.retrieved],
            }
            for item in outcomes
        ],
    }
