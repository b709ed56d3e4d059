"""`kb eval`: asks questions whose evidence is known, and measures."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kb.cli.session import ExitCode, get_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from kb.cli.measuring import Names
    from kb.client import KbClient
    from kb.question_sets import QuestionSet


def _remember_json(ctx: typer.Context, value: str | None) -> str | None:
    if value == "-":
        get_session(ctx).json = True
    return value


def evaluate(
    ctx: typer.Context,
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="SET",
            exists=True,
            help="Questions as TOML, JSON or JSON lines, or a folder with a corpus.",
        ),
    ],
    *,
    collection: Annotated[
        str | None,
        typer.Option("--collection", "-c", metavar="NAME", help="Collection to ask; not for a folder."),
    ] = None,
    answers: Annotated[
        bool,
        typer.Option(
            "--answers/--no-answers", " /--retrieval-only", help="Ask, too, or measure retrieval alone."
        ),
    ] = True,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Measure each index alone, too.")
    ] = True,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Put only N of the questions.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which ones --limit takes.")] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep a folder's collection for the next run.")
    ] = False,
    keep_as_baseline: Annotated[
        bool, typer.Option("--baseline", help="Later runs of these questions are compared with this one.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 if any question missed.")] = False,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            callback=_remember_json,
            help="Write all figures as JSON to FILE; - is standard output, then nothing else is printed.",
        ),
    ] = None,
    results_file: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="FILE",
            dir_okay=False,
            help="Write the documents found for each question as JSON to FILE, and the answers beside it.",
        ),
    ] = None,
) -> None:
    """Measure retrieval, refusals and citations on questions whose evidence is known.

    A question is ok when what holds its answer is among the first five results (all of it for a
    question that spans documents) and it was answered; or when no document answers it and it was
    refused. A folder with `corpus.jsonl` and `queries.jsonl` is ingested into a collection of its own,
    one document for each line, which is dropped at the end.
    """
    from rich.console import Console

    from kb.cli.eval_report import (
        describe,
        flatten,
        list_answers,
        list_results,
        print_metrics,
        print_outcomes,
    )
    from kb.cli.measuring import measure
    from kb.cli.output import get_console
    from kb.eval_baselines import Baseline, find_baseline, find_baselines_folder, keep_baseline
    from kb.evaluation import summarise
    from kb.question_sets import load_set

    question_set = load_set(questions).sample(limit, seed=seed)
    if collection is not None and question_set.texts is not None:
        raise typer.BadParameter(
            "a folder is ingested into a collection of its own", param_hint="--collection"
        )
    to_stdout = json_file == "-"
    console = Console(quiet=True) if to_stdout else get_console()
    with (
        get_session(ctx).open_client() as client,
        _open_collection(client, question_set, collection or "default", keep=keep, console=console) as opened,
    ):
        name, names = opened
        measured = measure(
            client,
            question_set.questions,
            collection=name,
            names=names,
            answers=answers,
            compare=compare,
            console=console,
        )
    metrics = summarise(measured.outcomes)
    folder, fingerprint = find_baselines_folder(), question_set.fingerprint
    baseline = find_baseline(folder, fingerprint)
    report = {
        "set": {"name": question_set.name, "fingerprint": fingerprint},
        **describe(measured.outcomes, metrics),
    }
    figures = flatten(report)
    report["baseline"] = None if baseline is None else _compare(figures, baseline)
    print_outcomes(console, measured.outcomes)
    print_metrics(console, report, metrics, baseline=baseline)
    if keep_as_baseline:
        kept_at = datetime.now(UTC).isoformat(timespec="seconds")
        _say_written(console, keep_baseline(folder, fingerprint, Baseline(kept_at, figures)))
    if results_file is not None:
        _write_json(console, results_file, list_results(measured.outcomes))
        if measured.answers:
            target = results_file.with_suffix(f".answers{results_file.suffix}")
            _write_json(console, target, list_answers(measured, names))
    if to_stdout:
        typer.echo(_to_json(report), nl=False)
    elif json_file is not None:
        _write_json(console, Path(json_file), report)
    if strict and metrics.ok < metrics.judged:
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def _open_collection(
    client: KbClient, question_set: QuestionSet, collection: str, *, keep: bool, console: Console
) -> Iterator[tuple[str, Names]]:
    """Yield the collection to ask, with what the set calls its documents."""
    from kb.cli.measuring import Names
    from kb.cli.scratch import scratch_collection

    if question_set.texts is None:
        yield collection, Names()
        return
    with scratch_collection(client, question_set, keep=keep, console=console) as scratch:
        for document in scratch.failed[:1]:
            said = f": {document.error.message}" if document.error else ""
            console.print(
                f"{len(scratch.failed)} of {len(scratch.ids)} documents could not be ingested{said}",
                style="yellow",
                highlight=False,
                markup=False,
            )
        yield scratch.collection, Names(scratch.ids)


def _compare(figures: dict[str, float], baseline: Any) -> dict[str, Any]:
    changes = {
        name: value - baseline.figures[name] for name, value in figures.items() if name in baseline.figures
    }
    return {"kept_at": baseline.kept_at, "changes": changes}


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _write_json(console: Console, path: Path, value: object) -> None:
    path.write_text(_to_json(value), encoding="utf-8")
    _say_written(console, path)


def _say_written(console: Console, path: Path) -> None:
    console.print(f"Written to {path}", style="dim", highlight=False, markup=False)
