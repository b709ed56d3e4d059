"""`kb ingest`: files and folders go in, one progress bar per document, a table at the end."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kb.cli.following import BAR_WIDTH, NAME_WIDTH, IngestRow, follow, plain, refresh
from kb.cli.session import CollectionOption, ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.client import KbClient


def ingest(
    ctx: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", exists=True, help="Files and folders; hidden files are skipped."),
    ],
    *,
    collection: CollectionOption = "default",
    force: Annotated[
        bool, typer.Option("--force", help="Ingest again what is there already, with today's settings.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Follow the jobs to their end, or return at once.")
    ] = True,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the collection in step with one folder, until Ctrl-C.")
    ] = False,
    password_prompt: Annotated[
        bool,
        typer.Option(
            "--password-prompt", help="Ask for the password of these files; read from a pipe if there is one."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add documents to a collection and follow them until they can be searched.

    Folders are read with all their sub-folders, in order. The collection is created if it is not
    there. The same bytes twice are one document, and files whose bytes are there already are not
    sent again; other bytes under a name that is there replace the former version once they are
    ready. The exit code is 1 if any document failed.

    With --watch, files that are added, changed or deleted in the folder are added, replaced or
    deleted in the collection. A document is named after its place in the folder, as in
    `press › 2024 › manual.pdf`. With --json, each event is one JSON document per line.
    """
    from kb.cli.output import get_console, print_json

    if watch:
        from kb.cli.watch import watch_folder

        if len(paths) != 1 or not paths[0].is_dir():
            raise typer.BadParameter("--watch takes exactly one folder", param_hint="PATH…")
        if force or password_prompt or not wait:
            raise typer.BadParameter("--watch goes with none of --force, --no-wait and --password-prompt")
        with get_session(ctx).open_client() as client:
            watch_folder(client, paths[0], collection=collection, as_json=as_json)
        return
    files = collect_files(paths)
    if not files:
        raise typer.BadParameter("there are no files in these folders", param_hint="PATH…")
    console = get_console()
    password = ask_password() if password_prompt else None
    with get_session(ctx).open_client() as client:
        rows = ingest_files(
            client,
            files,
            collection=collection,
            force=force,
            wait=wait,
            password=password,
            console=None if as_json else console,
        )
    if as_json:
        print_json({"collection": collection, "documents": [describe_row(row) for row in rows]})
    if any(row.failed for row in rows):
        raise typer.Exit(ExitCode.FAILED)


def ask_password() -> str:
    """Return the password that the user types unseen, or the first line of a pipe."""
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def collect_files(paths: Sequence[Path]) -> list[Path]:
    """Return files as given, folders as the sorted visible files below them; each file once."""
    found = dict[Path, None]()
    for path in paths:
        if not path.is_dir():
            found[path] = None
            continue
        for folder, subfolders, names in os.walk(path):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder) / name
                if not name.startswith(".") and file.is_file():
                    found[file] = None
    return list(found)


def name_uploads(files: Sequence[Path]) -> list[str]:
    """Return a document name per file: its own, with its folder before it where two share a name.

    A name stands for one document of a collection, so two files of one name would replace each other.
    """
    counts = Counter(file.name for file in files)
    names = list[str]()
    for file in files:
        name, parents = file.name, list(file.absolute().parts[1:-1])
        if counts[file.name] > 1:
            while parents and (name in names or name == file.name):
                name = f"{parents.pop()} - {name}"
        names.append(name)
    return names


def ingest_files(
    client: KbClient,
    files: Sequence[Path],
    *,
    collection: str,
    force: bool,
    wait: bool,
    console: Console | None,
    password: str | None = None,
) -> list[IngestRow]:
    """Upload and follow the files, showing progress and a table on `console` unless it is None."""
    from rich.console import Console

    started = time.monotonic()
    quiet = console is None
    shown = Console(quiet=True) if console is None else console
    if client.ensure_collection(collection):
        shown.print(f"Created the collection {collection!r}.", highlight=False, markup=False)
    rows = _upload(client, files, collection=collection, force=force, password=password, console=shown)
    if wait:
        rows = follow(client, rows, console=shown)
    for row in rows:
        refresh(client, row)
    if not quiet:
        print_rows(shown, rows, elapsed_s=time.monotonic() - started)
    return rows


def _upload(
    client: KbClient,
    files: Sequence[Path],
    *,
    collection: str,
    force: bool,
    password: str | None,
    console: Console,
) -> list[IngestRow]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from kb.cli.output import pad
    from kb.client import ClientError, ServiceUnreachableError
    from kb.filenames import clean_filename
    from kb.known_documents import KnownDocuments
    from kb.schemas import ProblemOut

    rows = [IngestRow(path, name) for path, name in zip(files, name_uploads(files), strict=True)]
    known = KnownDocuments([] if force else client.iter_documents(collection))
    there = known.find({row.name: row.path for row in rows})
    sizes = [_size_of(file) for file in files]
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=BAR_WIDTH),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        bar = progress.add_task("Uploading", total=sum(sizes))
        sent_before = 0
        for number, (row, size) in enumerate(zip(rows, sizes, strict=True), start=1):
            label = pad(f"Uploading {number}/{len(rows)} {row.name}", NAME_WIDTH)
            progress.update(bar, description=plain(label), completed=sent_before)
            try:
                row.document = there.get(row.name)
                if row.document is not None:
                    row.unchanged = row.document.name == clean_filename(row.name)
                    row.duplicate = not row.unchanged
                    sent_before += size
                    continue
                result = client.upload(
                    collection,
                    row.path,
                    name=row.name,
                    force=force,
                    password=password,
                    on_bytes=lambda count: progress.advance(bar, count),
                )
                row.document, row.duplicate, row.error = result.document, result.duplicate, result.error
            except ServiceUnreachableError:
                raise
            except ClientError as error:
                if error.status in (401, 403, 404):
                    raise
                row.error = ProblemOut(code=error.code, message=error.message, next_step=error.next_step)
            except OSError as error:
                row.error = ProblemOut(
                    code="unreadable_file",
                    message=f"the file cannot be read: {error.strerror or error}",
                    next_step="Check its permissions.",
                )
            sent_before += size
    return rows


def print_rows(console: Console, rows: Sequence[IngestRow], *, elapsed_s: float) -> None:
    """Print the table of all files, then one line of counts."""
    from rich.markup import escape

    from kb.cli.output import format_duration, make_table, name_state, paint_state

    table = make_table("document", ">pages", ">chunks", "state", "problem")
    for row in rows:
        document, problem = row.document, row.problem
        said = "" if problem is None else f"{escape(problem.code)}: {escape(problem.message)}"
        if problem is not None and problem.next_step:
            said += f"\n[dim]→ {escape(problem.next_step)}[/]"
        table.add_row(
            escape(row.name),
            str(document.page_count) if document and document.page_count else "–",
            str(document.chunk_count) if document and document.chunk_count else "–",
            paint_state(row.state),
            said,
        )
    console.print(table)
    counts = Counter(row.state for row in rows)
    parts = [f"{count} {name_state(state)}" for state, count in counts.items()]
    noun = "document" if len(rows) == 1 else "documents"
    console.print(
        f"{len(rows)} {noun}: {', '.join(parts)} [dim]in {format_duration(elapsed_s)}[/]", highlight=False
    )


def describe_row(row: IngestRow) -> dict[str, Any]:
    """Return one row as JSON values."""
    return {
        "path": str(row.path),
        "name": row.name,
        "state": row.state,
        "duplicate": row.duplicate,
        "document": None if row.document is None else row.document.model_dump(mode="json"),
        "error": None if row.error is None else row.error.model_dump(mode="json"),
    }


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
