"""Following the jobs of what `kb ingest` has sent, and of what came attached to that, to their end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from kb.client import ClientError, KbClient
    from kb.schemas import DocumentOut, JobOut, ProblemOut

NAME_WIDTH, BAR_WIDTH = 32, 18

# The pause between two looks grows, so that small files feel instant and large ones cost nothing.
_FIRST_POLL_S, _LAST_POLL_S = 0.05, 0.6
# Jobs are worked off in order: looking at the first few is enough, however many wait behind them.
_POLLED_JOBS = 16
_PATIENCE_S = 60.0
_FORMATS_WITH_ATTACHMENTS = ("application/pdf", "message/rfc822")


@dataclass(slots=True, eq=False)
class IngestRow:
    """What became of one file."""

    path: Path
    name: str
    document: DocumentOut | None = None
    duplicate: bool = False
    unchanged: bool = False
    error: ProblemOut | None = None

    @property
    def state(self) -> str:
        """State of the document, `unchanged`, `duplicate` or `failed`."""
        if self.error is not None or self.document is None:
            return "failed"
        if self.unchanged:
            return "unchanged"
        return "duplicate" if self.duplicate else self.document.state

    @property
    def failed(self) -> bool:
        """True when the file is not searchable and will not become so by itself."""
        return self.state in ("failed", "cancelled")

    @property
    def problem(self) -> ProblemOut | None:
        """Why it failed, or what a reader should know."""
        if self.error is not None:
            return self.error
        if self.document is None:
            return None
        return self.document.error or next(iter(self.document.warnings), None)


def refresh(client: KbClient, row: IngestRow) -> None:
    """Look at the row's document again."""
    from kb.client import ClientError

    if row.document is None or row.error is not None:
        return
    try:
        row.document = client.get_document(row.document.collection, row.document.id)
    except ClientError as error:
        if error.status != 404:
            raise
        row.error = _gone(error)


def _gone(error: ClientError) -> ProblemOut:
    """Return what to say of a document that somebody deleted meanwhile."""
    from kb.schemas import ProblemOut

    return ProblemOut(code=error.code, message="it was deleted or replaced while it was ingested")


def follow(
    client: KbClient, rows: Sequence[IngestRow], *, console: Console, patience_s: float = _PATIENCE_S
) -> list[IngestRow]:
    """Return the rows, what came attached to each behind it, once all their jobs have ended.

    Whatever keeps the jobs from going on is said at once on standard error. After `patience_s` of silence
    raises `ServiceUnreachableError`; and `NotIngestedError` after as much time without a worker, unless
    somebody watches at a terminal.
    """
    return _Following(client, rows, console=console, patience_s=patience_s).run()


class _Following:
    """One run of `follow`."""

    def __init__(
        self, client: KbClient, rows: Sequence[IngestRow], *, console: Console, patience_s: float
    ) -> None:
        self._client = client
        self._console = console
        self._patience_s = patience_s
        self._rows = list(rows)
        self._pending = [row for row in rows if _is_at_work(row)]
        self._known = {row.document.id for row in rows if row.document is not None}
        self._followed = len(self._pending)
        self._view = _View(console, total=self._followed)
        self._trouble = ""
        self._trouble_since = 0.0

    def run(self) -> list[IngestRow]:
        if not self._pending:
            return self._rows
        pause_s = _FIRST_POLL_S
        try:
            with self._view.progress:
                while self._pending:
                    self._look()
                    if self._pending:
                        time.sleep(pause_s)
                        pause_s = min(_LAST_POLL_S, pause_s * 1.2)
        except KeyboardInterrupt:
            self._console.print(
                f"Left {len(self._pending)} of {self._followed} documents to the workers; "
                "`kb jobs list` shows them.",
                highlight=False,
            )
            raise
        return self._rows

    def _look(self) -> None:
        """Look at the first jobs once."""
        from kb.client import ServiceUnreachableError

        try:
            stalled = [self._look_at(row) for row in self._pending[:_POLLED_JOBS]]
        except ServiceUnreachableError as error:
            self._note_trouble(error.message, error.next_step)
            if time.monotonic() - self._trouble_since > self._patience_s:
                raise
            return
        reason = stalled[0] if stalled and all(stalled) else ""
        if not reason:
            self._trouble = ""
            return
        from kb.cli.scratch import NotIngestedError

        stall = NotIngestedError(
            f"nobody works on the documents ({reason})",
            next_step="`kb status` shows what is down. They are queued: the work begins once it is up.",
        )
        self._note_trouble(stall.message, stall.next_step)
        if not self._console.is_terminal and time.monotonic() - self._trouble_since > self._patience_s:
            raise stall

    def _look_at(self, row: IngestRow) -> str:
        """Take note of one job; return why nobody works on it, if so."""
        from kb.client import ClientError
        from kb.types import DocumentState

        assert row.document is not None
        try:
            job = self._client.get_job(row.document.job_id)
            state = DocumentState(job.document_state)
            if state.is_searchable:
                self._add_attached(row)
        except ClientError as error:
            if error.status != 404:
                raise
            row.error = _gone(error)
            self._pending.remove(row)
            return ""
        self._view.show(row, job)
        if state.is_terminal:
            self._pending.remove(row)
        return job.stalled_reason or ""

    def _add_attached(self, parent: IngestRow) -> None:
        """Follow what came attached to a document that is ready, too."""
        assert parent.document is not None
        document = self._client.get_document(parent.document.collection, parent.document.id)
        if document.media_type not in _FORMATS_WITH_ATTACHMENTS:
            return
        attached = [
            IngestRow(parent.path, item.name, document=item)
            for item in self._client.iter_documents(document.collection, parent_id=document.id)
            if item.id not in self._known
        ]
        self._known.update(row.document.id for row in attached if row.document is not None)
        place = self._rows.index(parent) + 1
        self._rows[place:place] = attached
        waiting = [row for row in attached if _is_at_work(row)]
        place = self._pending.index(parent) + 1
        self._pending[place:place] = waiting
        self._followed += len(waiting)
        self._view.add(len(waiting))

    def _note_trouble(self, message: str, next_step: str) -> None:
        from kb.cli.output import get_error_console

        if self._trouble == message:
            return
        self._trouble, self._trouble_since = message, time.monotonic()
        shown = plain(f"{message[:1].upper()}{message[1:]}. {next_step}")
        get_error_console().print(shown, highlight=False, soft_wrap=True)


def _is_at_work(row: IngestRow) -> bool:
    from kb.types import DocumentState

    return (
        row.error is None
        and row.document is not None
        and bool(row.document.job_id)
        and not DocumentState(row.document.state).is_terminal
    )


class _View:
    """One bar per document at work and one over all; ended documents become lines above the bars."""

    def __init__(self, console: Console, *, total: int) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self.progress: Progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[pages]:<11}"),
            TextColumn("{task.fields[stage]}", style="dim"),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._console = console
        self._total = total
        self._bars: dict[str, TaskID] = {}
        self._stages: dict[str, str] = {}
        self._all = self.progress.add_task(
            _pad(f"All {total} documents"), total=total, pages=f"0/{total}", stage="", left=""
        )
        self._started = time.monotonic()
        self._done = 0

    def add(self, count: int) -> None:
        """Expect more documents than at first."""
        self._total += count
        self.progress.update(self._all, description=_pad(f"All {self._total} documents"), total=self._total)

    def show(self, row: IngestRow, job: JobOut) -> None:
        """Update the bar of one document."""
        from kb.types import DocumentState

        if DocumentState(job.document_state).is_terminal:
            self._finish(row, job)
            return
        stage = job.stalled_reason or job.stage or job.document_state
        if job.document_state == "queued" and job.stalled_reason is None:
            return
        if not self._console.is_terminal:
            if self._stages.get(job.id) != stage:
                self._stages[job.id] = stage
                self._console.print(f"{row.name}: {stage}", highlight=False, markup=False)
            return
        bar = self._bars.get(job.id)
        if bar is None:
            bar = self.progress.add_task(_pad(row.name), total=None, pages="", stage="", left="")
            self._bars[job.id] = bar
        total = job.page_count or None
        pages = f"{job.pages_done}/{job.page_count} p." if total else ""
        self.progress.update(
            bar, total=total, completed=job.pages_done, pages=pages, stage=stage, left=_name_rest(job.eta_s)
        )

    def _finish(self, row: IngestRow, job: JobOut) -> None:
        from rich.markup import escape

        from kb.cli.output import paint_state

        bar = self._bars.pop(job.id, None)
        if bar is not None:
            self.progress.remove_task(bar)
        self._done += 1
        rest_s = (time.monotonic() - self._started) / self._done * (self._total - self._done)
        self.progress.update(
            self._all, completed=self._done, pages=f"{self._done}/{self._total}", left=_name_rest(rest_s)
        )
        mark = "[green]✓[/]" if job.state == "succeeded" else "[bold red]✗[/]"
        self.progress.console.print(
            f"{mark} {escape(row.name)}  {paint_state(job.document_state)}", highlight=False
        )


def _name_rest(rest_s: float | None) -> str:
    from kb.cli.output import format_duration

    return f"{format_duration(rest_s)} left" if rest_s else ""


def plain(text: str) -> str:
    """Return the text so that none of it is taken for markup."""
    from rich.markup import escape

    return escape(text)


def _pad(text: str) -> str:
    from kb.cli.output import pad

    return plain(pad(text, NAME_WIDTH))
