"""`kb calibrate`: sets the evidence that answers from a collection need."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.calibration import Judged
    from kb.client import KbClient
    from kb.evaluation import Question
    from kb.schemas import CalibrationOut


def calibrate(
    ctx: typer.Context,
    questions: Annotated[
        Path | None,
        typer.Option(
            "--set",
            metavar="SET",
            exists=True,
            help="Questions whose answerability is known, as for kb eval.",
        ),
    ] = None,
    *,
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection", "-c", metavar="NAME", help="Collection to calibrate; `default` if left out."
        ),
    ] = None,
    target: Annotated[
        float,
        typer.Option(
            "--target-false-answers",
            min=0,
            max=1,
            metavar="R",
            help="Share of wrong questions that may pass.",
        ),
    ] = 0.05,
    check: Annotated[
        bool,
        typer.Option("--check", help="Measure nothing; end with 1 if a threshold is stale or missing."),
    ] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Go back to the threshold of the settings.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the least evidence at which no more than R of the unanswerable questions would be answered.

    Needs questions that the documents answer and questions that they don't. The threshold is kept with the
    collection, together with what it was measured with: when embedder, reranker or chunker change it is left
    aside, and `--check` and `kb status` say so. A folder that brings its own documents is only measured,
    unless a collection is named that shall have the threshold.
    """
    from kb.cli.output import get_console, print_json

    if sum((questions is not None, check, reset)) != 1:
        raise typer.BadParameter("one of --set, --check and --reset is needed", param_hint="--set")
    console = get_console()
    name = collection or "default"
    with get_session(ctx).open_client() as client:
        if reset:
            client.delete_calibration(name)
        elif questions is None:
            found = client.get_calibration(name)
            if as_json:
                print_json(found)
            else:
                _print(console, found)
            if found.changed:
                raise typer.Exit(ExitCode.FAILED)
        else:
            done = _measure(client, questions, collection=collection, target=target, console=console)
            if as_json:
                print_json(done)
            else:
                _print(console, done)


def _measure(
    client: KbClient, path: Path, *, collection: str | None, target: float, console: Console
) -> CalibrationOut:
    """Put the questions, choose the threshold and keep it with the collection."""
    from kb.calibration import choose_threshold, measure_rates
    from kb.cli.scratch import scratch_collection
    from kb.question_sets import load_set
    from kb.schemas import CalibrationIn

    question_set = load_set(path)
    with ExitStack() as stack:
        asked = collection or "default"
        if question_set.texts is not None:
            scratch = stack.enter_context(
                scratch_collection(client, question_set, keep=False, console=console)
            )
            asked = scratch.collection
        judged = _judge(client, question_set.questions, collection=asked)
        threshold = choose_threshold(judged, target_false_answers=target)
        rates = measure_rates(judged, threshold=threshold)
        answerable = sum(item.answerable for item in judged)
        return client.set_calibration(
            collection or asked,
            CalibrationIn(
                threshold=threshold,
                target_false_answers=target,
                false_answers=rates.false_answers,
                false_refusals=rates.false_refusals,
                answerable=answerable,
                unanswerable=len(judged) - answerable,
            ),
        )


def _judge(client: KbClient, questions: Sequence[Question], *, collection: str) -> list[Judged]:
    from kb.calibration import Judged

    judged = []
    for question in questions:
        found = client.search(question.text, collection=collection, top_k=1)
        judged.append(
            Judged(question.answerable, found.evidence or 0.0, is_refused=bool(found.unknown_codes))
        )
    return judged


def _print(console: Console, found: CalibrationOut) -> None:
    from rich.markup import escape

    console.print(
        f"[bold]{escape(found.collection)}[/]: an answer needs evidence of {found.threshold:.3f}",
        highlight=False,
    )
    console.print(
        f"  {found.false_answers:.1%} of {found.unanswerable} unanswerable questions pass "
        f"(asked for {found.target_false_answers:.1%}), {found.false_refusals:.1%} of {found.answerable} "
        f"answerable ones are refused; measured {found.measured_at:%Y-%m-%d}",
        highlight=False,
    )
    if found.changed:
        console.print(
            f"  Stale: {', '.join(found.changed)} changed since; the threshold of the settings holds. "
            "Measure it anew.",
            style="yellow",
            highlight=False,
        )
