"""A collection for one evaluation: filled with the texts of a set, and dropped whatever happens."""

from __future__ import annotations

import hashlib
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kb.errors import KbError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.progress import Progress

    from kb.client import KbClient
    from kb.question_sets import QuestionSet, SourceText
    from kb.schemas import DocumentOut

_FILES_PER_REQUEST, _BYTES_PER_REQUEST = 200, 8 * 1024**2
_FIRST_POLL_S, _LAST_POLL_S = 0.05, 0.6
_NAME_LENGTH = 40


class NotIngestedError(KbError):
    """The texts of a set can't be searched."""

    code = "not_ingested"


@dataclass(frozen=True, slots=True)
class Scratch:
    """A filled collection; `ids` are the texts' ids by document id, several where texts are equal."""

    collection: str
    ids: Mapping[str, tuple[str, ...]]
    failed: tuple[DocumentOut, ...]


@contextmanager
def scratch_collection(
    client: KbClient, question_set: QuestionSet, *, keep: bool, console: Console, patience_s: float = 60.0
) -> Iterator[Scratch]:
    """Yield a collection with one document for each text; drop it at the end unless it is to be kept.

    It is also dropped after an error, Ctrl-C or SIGTERM. A kept one is found again by a later run.
    Raises `NotIngestedError` when nobody works on the documents for `patience_s`.
    """
    from kb.cli.service import signals_as_interrupt, signals_ignored

    texts = question_set.texts or ()
    mark = _mark(texts) if keep else secrets.token_hex(4)
    collection = f"eval {question_set.name[:_NAME_LENGTH].strip()} {mark}"
    with signals_as_interrupt():
        try:
            client.ensure_collection(collection)
            yield _fill(client, collection, texts, console=console, patience_s=patience_s)
        finally:
            if not keep:
                with signals_ignored():
                    client.delete_collection(collection)
    if keep:
        console.print(f"Kept the collection {collection!r}.", highlight=False, markup=False)


def _fill(
    client: KbClient, collection: str, texts: Sequence[SourceText], *, console: Console, patience_s: float
) -> Scratch:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    by_hash: dict[str, list[str]] = {}
    for text in texts:
        by_hash.setdefault(_hash(text), []).append(text.id)
    known = {document.sha256 for document in client.iter_documents(collection)}
    # Neither the id nor the title is the name: it would be searched, and a set's ids may say the answer.
    missing = {f"{index:07d}.txt": text.text for index, text in enumerate(texts) if _hash(text) not in known}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        jobs = _upload(client, collection, missing, progress)
        _follow(client, jobs, progress, patience_s=patience_s)
    documents = list(client.iter_documents(collection))
    failed = tuple(document for document in documents if document.state in ("failed", "cancelled"))
    if documents and len(failed) == len(documents):
        problem = failed[0].error
        raise NotIngestedError(
            f"none of {len(failed)} documents could be ingested"
            + (f": {problem.message}" if problem is not None else ""),
            next_step=problem.next_step if problem is not None else "Look at `kb jobs list`.",
        )
    ids = {document.id: tuple(by_hash.get(document.sha256, ())) for document in documents}
    return Scratch(collection, ids, failed)


def _upload(client: KbClient, collection: str, texts: Mapping[str, str], progress: Progress) -> list[str]:
    """Send the texts, many in a request; return the ids of their jobs in order."""
    bar = progress.add_task("Uploading", total=len(texts))
    jobs: dict[str, None] = {}
    for batch in _batches(texts):
        for result in client.upload_texts(collection, batch):
            if result.document is not None:
                jobs.setdefault(result.document.job_id)
        progress.advance(bar, len(batch))
    return list(jobs)


def _batches(texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    batch: dict[str, str] = {}
    size = 0
    for name, text in texts.items():
        if batch and (len(batch) == _FILES_PER_REQUEST or size + len(text) * 3 > _BYTES_PER_REQUEST):
            yield batch
            batch, size = {}, 0
        batch[name] = text
        size += len(text) * 3
    if batch:
        yield batch


def _follow(client: KbClient, jobs: Sequence[str], progress: Progress, *, patience_s: float) -> None:
    """Wait until every job has ended; raises `NotIngestedError` when nobody works on them."""
    from kb.types import DocumentState

    bar = progress.add_task("Ingesting", total=len(jobs))
    for job_id in jobs:
        pause_s, stalled_since = _FIRST_POLL_S, None
        while True:
            job = client.get_job(job_id)
            if DocumentState(job.document_state).is_terminal:
                break
            stalled_since = (stalled_since or time.monotonic()) if job.stalled_reason else None
            if stalled_since is not None and time.monotonic() - stalled_since > patience_s:
                raise NotIngestedError(
                    f"nobody works on the documents ({job.stalled_reason})",
                    next_step="`kb status` shows what is down.",
                )
            time.sleep(pause_s)
            pause_s = min(_LAST_POLL_S, pause_s * 1.2)
        progress.advance(bar)


def _hash(text: SourceText) -> str:
    return hashlib.sha256(text.text.encode("utf-8")).hexdigest()


def _mark(texts: Sequence[SourceText]) -> str:
    return hashlib.sha256("\0".join(f"{text.id}\0{_hash(text)}" for text in texts).encode()).hexdigest()[:8]
