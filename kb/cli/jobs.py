"""`kb jobs …`: list, show, cancel, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import JsonOption, get_session

if TYPE_CHECKING:
    from kb.schemas import JobOut

app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="List, show, cancel and retry ingestion jobs."
)

_Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the job, from `kb jobs list`.")]


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", metavar="NAME", help="Only this collection.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only this state, such as failed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    from rich.markup import escape

    from kb.cli.output import format_duration, print_json, print_rows
    from kb.schemas import JobsOut

    with get_session(ctx).open_client() as client:
        found = client.list_jobs(collection=collection, state=state, limit=limit)
    if as_json:
        print_json(JobsOut(jobs=found))
        return
    several = len({item.collection for item in found}) > 1
    print_rows(
        (
            "document",
            *(["collection"] if several else []),
            "state",
            ">pages",
            ">stage ends in",
            "queued",
            "id",
        ),
        [
            (
                escape(item.document_name),
                *([escape(item.collection)] if several else []),
                _describe_state(item),
                f"{item.pages_done}/{item.page_count}" if item.page_count else "–",
                "–" if item.eta_s is None else format_duration(item.eta_s),
                f"{item.created_at.astimezone():%m-%d %H:%M}",
                f"[dim]{escape(item.id)}[/]",
            )
            for item in found
        ],
        empty="No jobs.",
    )


def _describe_state(job: JobOut) -> str:
    from rich.markup import escape

    from kb.cli.output import paint_state

    more = job.stalled_reason or job.stage
    return paint_state(job.state) + (f" ({escape(more)})" if more and more != job.state else "")


@app.command("show")
def show(ctx: typer.Context, job_id: _Id, as_json: JsonOption = False) -> None:
    """Show one job with each of its runs."""
    with get_session(ctx).open_client() as client:
        _print_job(client.get_job(job_id), as_json=as_json)


@app.command("cancel")
def cancel(ctx: typer.Context, job_id: _Id, as_json: JsonOption = False) -> None:
    """Ask a job to stop; a running one stops within seconds."""
    with get_session(ctx).open_client() as client:
        _print_job(client.cancel_job(job_id), as_json=as_json)


@app.command("retry")
def retry(ctx: typer.Context, job_id: _Id, as_json: JsonOption = False) -> None:
    """Run a failed or cancelled job again."""
    with get_session(ctx).open_client() as client:
        _print_job(client.retry_job(job_id), as_json=as_json)


def _print_job(job: JobOut, *, as_json: bool) -> None:
    from rich.markup import escape

    from kb.cli.output import format_duration, get_console, make_table, paint_state, print_json

    if as_json:
        print_json(job)
        return
    console = get_console()
    pages = f"  {job.pages_done}/{job.page_count} pages" if job.page_count else ""
    if job.eta_s is not None:
        pages += f", {format_duration(job.eta_s)} left"
    stopping = "  [magenta]stopping[/]" if job.cancel_requested and job.state == "running" else ""
    console.print(
        f"[bold cyan]{escape(job.document_name)}[/]  {paint_state(job.state)}"
        f"  [dim]{escape(job.stage)}{pages}[/]{stopping}",
        highlight=False,
    )
    if job.stalled_reason:
        console.print(f"  [yellow]{escape(job.stalled_reason)}[/]", highlight=False)
    console.print(f"  [dim]job {escape(job.id)} · document {escape(job.document_id)}[/]", highlight=False)
    if job.attempts:
        table = make_table(">run", "worker", "started", "ended", "problem")
        for attempt in job.attempts:
            ended, problem = attempt.finished_at, attempt.error
            table.add_row(
                str(attempt.number),
                escape(attempt.worker),
                f"{attempt.started_at.astimezone():%H:%M:%S}",
                "–" if ended is None else f"{ended.astimezone():%H:%M:%S}",
                ""
                if problem is None
                else escape(f"{problem.code}: {problem.message} {problem.next_step}".strip()),
            )
        console.print(table)
