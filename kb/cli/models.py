"""`kb models …`: list, fetch and verify the starter models."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.progress import TaskID

    from kb.models import ModelStatus, ProgressCallback, PullOutcome, PullProgress

app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="List, fetch and verify the starter models."
)

_Roles = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ROLE…]", help="embedder or generator; default is both.", show_default=False),
]
_STEP_WIDTH = 32
"""Leaves room for the bar, sizes and time left in 80 columns."""
_STEPS = {"download": "downloads", "join": "joins", "convert": "converts", "verify": "verifies"}


@app.command("list")
def list_models(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the starter models and whether they are there."""
    from kb.models import get_status

    statuses = get_status(get_session(ctx).load_settings().resolved_models_dir)
    print_statuses(statuses, as_json=as_json)


@app.command("pull")
def pull(
    ctx: typer.Context,
    roles: _Roles = None,
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Take the packages from this folder; nothing is fetched from the network.",
        ),
    ] = None,
    if_missing: Annotated[
        bool,
        typer.Option(
            "--if-missing",
            help="Say nothing when all is there, and only warn when the generator can't be had: "
            "answers are quotes then.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch what is missing or damaged, checked by SHA-256; a download that broke off goes on.

    The exit code is 1 if a model could not be had.
    """
    from kb.cli.output import get_console
    from kb.models import pull as pull_models

    models_dir = get_session(ctx).load_settings().resolved_models_dir
    console = get_console()
    with show_progress(console, quiet=as_json) as progress:
        outcomes = pull_models(models_dir, roles=roles or None, progress=progress, source_dir=source)
    print_outcomes(console, outcomes, as_json=as_json, quiet=if_missing)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if if_missing:
        failed = [outcome for outcome in failed if outcome.status.role != "generator"]
    if failed:
        raise typer.Exit(ExitCode.FAILED)


@app.command("verify")
def verify(ctx: typer.Context, roles: _Roles = None, as_json: JsonOption = False) -> None:
    """Check the SHA-256 of every model file. The exit code is 1 if a model is missing or damaged."""
    from kb.cli.output import get_console
    from kb.models import ModelState
    from kb.models import verify as verify_models

    models_dir = get_session(ctx).load_settings().resolved_models_dir
    with show_progress(get_console(), quiet=as_json) as progress:
        statuses = verify_models(models_dir, roles=roles or None, progress=progress)
    print_statuses(statuses, as_json=as_json)
    if any(status.state is not ModelState.READY for status in statuses):
        raise typer.Exit(ExitCode.FAILED)


def describe_status(status: ModelStatus) -> dict[str, str | int]:
    """Return a status as JSON values."""
    return {
        "role": status.role,
        "name": status.name,
        "licence": status.licence,
        "path": str(status.path),
        "state": status.state.value,
        "size_bytes": status.size_bytes,
        "download_bytes": status.download_bytes,
        "detail": status.detail,
    }


def print_statuses(statuses: Sequence[ModelStatus], *, as_json: bool) -> None:
    """Print what is on disk, and what to do if that is not enough."""
    from rich.markup import escape

    from kb.cli.output import format_size, get_console, make_table, paint_state, print_json

    if as_json:
        print_json({"models": [describe_status(status) for status in statuses]})
        return
    console = get_console()
    table = make_table("role", "model", "licence", "state", ">size")
    for status in statuses:
        size = status.size_bytes or status.download_bytes
        table.add_row(
            status.role,
            escape(status.name),
            escape(status.licence),
            paint_state(status.state),
            format_size(size) if status.size_bytes else f"[dim]{format_size(size)} to fetch[/]",
        )
    console.print(table)
    if statuses:
        console.print(f"[dim]in {escape(str(statuses[0].path.parent))}[/]", highlight=False, soft_wrap=True)
    for status in statuses:
        if status.detail:
            console.print(
                f"[yellow]![/] {status.role}: {escape(status.detail)}", highlight=False, soft_wrap=True
            )
    if any(status.detail for status in statuses):
        console.print("[bold]Next[/]  Run `kb models pull`.", highlight=False)


def print_outcomes(console: Console, outcomes: Sequence[PullOutcome], *, as_json: bool, quiet: bool) -> None:
    """Print how each pull ended; `quiet` leaves out what was there already."""
    from rich.markup import escape

    from kb.cli.output import format_size, print_json

    if as_json:
        print_json(
            {
                "models": [
                    describe_status(outcome.status)
                    | {
                        "changed": outcome.changed,
                        "error": "" if outcome.error is None else outcome.error.message,
                    }
                    for outcome in outcomes
                ]
            }
        )
        return
    for outcome in outcomes:
        status, error = outcome.status, outcome.error
        label = f"{status.role} {escape(status.name)}"
        if error is not None:
            console.print(f"[bold red]✗[/] {label}: {escape(error.message)}", highlight=False, soft_wrap=True)
            if error.next_step:
                console.print(f"  [dim]→[/] {escape(error.next_step)}", highlight=False, soft_wrap=True)
            if status.role == "generator":
                console.print("  [dim]Without it, answers are quotes from the documents.[/]", highlight=False)
        elif outcome.changed or not quiet:
            said = "is ready" if outcome.changed else "was there already"
            console.print(
                f"[green]✓[/] {label} {said} [dim]{format_size(status.size_bytes)}[/]", highlight=False
            )


@contextmanager
def show_progress(console: Console, *, quiet: bool) -> Iterator[ProgressCallback]:
    """Yield a callback that draws one bar per model, with sizes and time left where bytes are counted."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from kb.cli.output import format_size, pad

    shown = console.is_terminal and not quiet
    bars: dict[str, TaskID] = {}
    steps: dict[str, str] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TextColumn("{task.fields[size]}", style="dim"),
        TimeRemainingColumn(),
        console=console,
        disable=not shown,
        transient=True,
    ) as progress:

        def report(event: PullProgress) -> None:
            step = f"{event.role} {_STEPS.get(event.step, event.step)}"
            if steps.get(event.role) != f"{step} {event.name}":
                steps[event.role] = f"{step} {event.name}"
                if not shown and not quiet:
                    size = f" ({format_size(event.total)})" if event.step == "download" else ""
                    console.print(f"{step} {event.name}{size}", highlight=False, markup=False, soft_wrap=True)
                if event.role in bars:
                    progress.remove_task(bars.pop(event.role))
            if event.role not in bars:
                bars[event.role] = progress.add_task(
                    pad(f"{step} {event.name}", _STEP_WIDTH), total=event.total, size=""
                )
            counted = event.step != "convert"
            size = f"{format_size(event.done)} of {format_size(event.total)}" if counted else ""
            progress.update(bars[event.role], completed=event.done, total=event.total, size=size)

        yield report
