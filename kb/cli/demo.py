"""`kb demo`: starts the service, ingests the samples, asks the sample questions, serves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.client import KbClient
    from kb.evaluation import Question
    from kb.schemas import AnswerOut

QUESTIONS_FILE = "questions.toml"
_COLLECTION = "default"
_NOT_DOCUMENTS = (".toml", ".py")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer."""

    question: Question
    answer: AnswerOut

    @property
    def as_expected(self) -> bool:
        """True when it was refused rightly, or says an expected answer and cites a page that holds it."""
        from kb.evaluation import contains_answer, rank_places

        if not self.question.answerable:
            return self.answer.refused
        cited = rank_places(
            self.question, ((item.document_name, [item.page_number]) for item in self.answer.citations)
        )
        answers = self.question.answers
        said = not answers or contains_answer(answers, [self.answer.answer])
        return said and not self.answer.refused and any(places & self.question.places for places in cited)


def demo(
    ctx: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="End after the answers instead of serving until Ctrl-C.")
    ] = False,
    samples: Annotated[
        Path,
        typer.Option(
            "--samples", metavar="DIR", exists=True, file_okay=False, help="Documents and questions.toml."
        ),
    ] = Path("sample_docs"),
    limit: Annotated[
        int | None, typer.Option("--questions", metavar="N", min=1, help="Ask only the first N questions.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start the service, ingest the sample documents, ask the sample questions, then serve.

    The exit code is 1 if a document failed or the service broke, else 0. With --json, everything is
    printed as one JSON document after the last answer.
    """
    from kb.cli.ingest import describe_row, ingest_files
    from kb.cli.output import get_console, print_json
    from kb.cli.service import run_service
    from kb.cli.up import print_welcome
    from kb.client import KbClient
    from kb.question_sets import load_set

    console = get_console()
    settings = get_session(ctx).load_settings()
    files = find_samples(samples)
    questions = load_set(samples / QUESTIONS_FILE).questions[:limit]
    failed, serving = False, False
    try:
        with run_service(
            settings, console=console, emit=(lambda _event: None) if as_json else None
        ) as service:
            with KbClient(service.url, api_key=settings.api_key) as client:
                _headline(console, f"Ingesting {len(files)} sample documents", quiet=as_json)
                rows = ingest_files(
                    client,
                    files,
                    collection=_COLLECTION,
                    force=False,
                    wait=True,
                    console=None if as_json else console,
                )
                failed = any(row.failed for row in rows)
                asked = ask_all(client, questions, console=None if as_json else console)
            if as_json:
                print_json(
                    {
                        "url": service.url,
                        "documents": [describe_row(row) for row in rows],
                        "answers": [
                            {
                                "id": item.question.id,
                                "as_expected": item.as_expected,
                                **item.answer.model_dump(mode="json"),
                            }
                            for item in asked
                        ],
                    }
                )
            else:
                print_summary(console, asked)
            if not once:
                if not as_json:
                    print_welcome(console, service)
                serving = True
                service.wait()
    except KeyboardInterrupt:
        if not serving:
            raise
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def find_samples(folder: Path) -> list[Path]:
    """Return the documents of the samples folder itself, sorted: no scripts, settings or read-me."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and not path.name.startswith(".")
        and path.suffix not in _NOT_DOCUMENTS
        and path.stem.upper() not in ("README", "LICENSE")
    )


def ask_all(client: KbClient, questions: Sequence[Question], *, console: Console | None) -> list[Asked]:
    """Ask each question in turn; on a console the answers are shown while they are written."""
    from rich.text import Text

    from kb.cli.ask import print_answer

    asked = list[Asked]()
    for number, question in enumerate(questions, start=1):
        if console is None:
            asked.append(Asked(question, client.ask(question.text, collection=_COLLECTION)))
            continue
        console.print()
        title = Text.assemble((f"{number}/{len(questions)} ", "dim"), (question.text, "bold"))
        console.rule(title, align="left", style="dim")
        asked.append(Asked(question, print_answer(console, client, question.text, collection=_COLLECTION)))
    return asked


def print_summary(console: Console, asked: Sequence[Asked]) -> None:
    """Print one row per question: how it was answered and from where."""
    from rich.markup import escape

    from kb.cli.output import cut, make_table

    _headline(console, "Summary", quiet=False)
    table = make_table("", "question", "answer", "cited")
    for item in asked:
        cited = dict.fromkeys(
            f"{entry.document_name} p. {entry.page_number}" for entry in item.answer.citations
        )
        table.add_row(
            "[green]✓[/]" if item.as_expected else "[yellow]?[/]",
            escape(cut(item.question.text, 48)),
            "[yellow]refused[/]" if item.answer.refused else escape(item.answer.mode),
            escape("\n".join(cited)) or "[dim]–[/]",
        )
    console.print(table)
    expected = sum(item.as_expected for item in asked)
    console.print(
        f"{expected} of {len(asked)} as expected [dim](✓: says what was asked and cites a page "
        "that holds it, or refuses what no document says)[/]",
        highlight=False,
    )


def _headline(console: Console, text: str, *, quiet: bool) -> None:
    if not quiet:
        console.print(f"\n[bold]{text}[/]", highlight=False)
