"""ChunkIndexer: chunks to vectors and into both indexes; whatever is there already is not done again."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

import structlog

from ingest.lease import JobLease
from kb.errors import BackendError, JobPausedError
from kb.ports import Embedder, LexicalEntry, LexicalIndex, VectorRecord, Vectors, VectorStore
from kb.types import Chunk

_log = structlog.get_logger(__name__)

_ROWS_PER_WRITE = 128
_WAITING_BATCHES = 8
_ROUNDS = 3

Done = Callable[[float], None]
"""Called with the share of the text that is embedded, 0..1; first with what was when the call began."""


class ChunkIndexer:
    """Embeds in batches of like length, so that little is padded, while a thread writes."""

    def __init__(
        self, *, embedder: Embedder, vectors: VectorStore, lexical: LexicalIndex, batch_size: int
    ) -> None:
        self._embedder = embedder
        self._vectors = vectors
        self._lexical = lexical
        self._batch_size = batch_size

    def add(
        self, collection_id: str, key: str, chunks: Sequence[Chunk], *, lease: JobLease, done: Done
    ) -> None:
        """Embed and write all chunks; nothing may be stored under `key` before.

        Raises `JobCancelledError`, or `JobPausedError` after at least one batch has been written.
        """
        self._embed(collection_id, key, chunks, lease=lease, done=done)

    def complete(
        self, collection_id: str, key: str, chunks: Sequence[Chunk], *, lease: JobLease, done: Done
    ) -> None:
        """Embed and write the chunks that are missing from either index; raises like `add`."""
        for _ in range(_ROUNDS):
            in_vectors = self._vectors.list_chunk_ids(collection_id, key)
            stored = in_vectors & self._lexical.list_chunk_ids(collection_id, key)
            missing = [chunk for chunk in chunks if chunk.id not in stored]
            if not missing:
                return
            _log.info("embedding_resumed", chunks=len(chunks), stored=len(chunks) - len(missing))
            rest = _count_tokens(missing) / _count_tokens(chunks)
            self._embed(
                collection_id,
                key,
                missing,
                lease=lease,
                done=lambda share: done(1 - rest * (1 - share)),  # noqa: B023 - called in this round only
            )
        raise BackendError(f"{len(missing)} chunks of {key!r} were written and are not in the indexes")

    def remove(self, collection_id: str, key: str) -> None:
        """Remove all that stands under `key` in both indexes."""
        self._vectors.delete_document(collection_id, key)
        self._lexical.delete_document(collection_id, key)

    def _embed(
        self, collection_id: str, key: str, chunks: Sequence[Chunk], *, lease: JobLease, done: Done
    ) -> None:
        longest_first = sorted(chunks, key=lambda chunk: -chunk.token_count)
        token_count, tokens_done = _count_tokens(chunks), 0
        done(0.0)
        with _Writer(self._vectors, self._lexical, collection_id, key) as writer:
            for batch in _slices(len(chunks), self._batch_size):
                lease.check()
                if batch.start and lease.should_pause():
                    writer.finish()
                    raise JobPausedError(f"the embedding of {key!r} goes on later")
                texts = longest_first[batch]
                writer.put(texts, self._embedder.embed_passages([chunk.indexed_text for chunk in texts]))
                tokens_done += _count_tokens(texts)
                done(tokens_done / token_count)
            writer.finish()


class _Writer:
    """Writes batches in a thread of its own; a context manager that leaves no thread behind.

    What is put when the block is left by an exception may be lost. A failure of the thread is raised by the
    next call.
    """

    def __init__(self, vectors: VectorStore, lexical: LexicalIndex, collection_id: str, key: str) -> None:
        self._vectors = vectors
        self._lexical = lexical
        self._collection_id = collection_id
        self._key = key
        self._waiting: queue.Queue[tuple[list[Chunk], Vectors] | None] = queue.Queue(_WAITING_BATCHES)
        self._failure: Exception | None = None
        self._abandoned = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"write-{key}", daemon=True)

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self._abandoned.set()
            self._waiting.put(None)
            self._thread.join()

    def put(self, chunks: list[Chunk], vectors: Vectors) -> None:
        """Hand over a batch; waits while too many are waiting."""
        self._raise_failure()
        self._waiting.put((chunks, vectors))

    def finish(self) -> None:
        """Wait until all is written."""
        self._waiting.put(None)
        self._thread.join()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        ended = False
        while not ended:
            chunks: list[Chunk] = []
            records: list[VectorRecord] = []
            while len(chunks) < _ROWS_PER_WRITE:
                item = self._waiting.get()
                if item is None:
                    ended = True
                    break
                chunks.extend(item[0])
                records.extend(
                    VectorRecord(chunk.id, self._key, vector, language=chunk.language)
                    for chunk, vector in zip(*item, strict=True)
                )
            if self._failure is None and not self._abandoned.is_set():
                self._write(chunks, records)

    def _write(self, chunks: Sequence[Chunk], records: Sequence[VectorRecord]) -> None:
        try:
            self._vectors.upsert(self._collection_id, records)
            entries = [LexicalEntry(chunk.id, self._key, chunk.indexed_text) for chunk in chunks]
            self._lexical.upsert(self._collection_id, entries)
        except Exception as error:  # raised again in the thread that works on the job
            self._failure = error


def _count_tokens(chunks: Sequence[Chunk]) -> int:
    return sum(max(chunk.token_count, 1) for chunk in chunks)


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
