"""Small parts that keep the ports' promises, for tests of the answering core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from kb.codes import canonicalise, iter_codes
from kb.errors import GeneratorUnavailableError
from kb.language import detect_language
from kb.ports import Vectors
from kb.types import (
    Chunk,
    Citation,
    Collection,
    GenerationDelta,
    GenerationEnd,
    GenerationEvent,
    GenerationRequest,
    Message,
    Page,
    Passage,
    PassageMark,
    Receipt,
    Sampling,
    Scope,
    ScoredId,
    Span,
)
from kb.words import get_all_terms

COLLECTION = Collection(id="col", name="default", created_at=datetime(2026, 1, 1, tzinfo=UTC))


def make_chunk(
    text: str,
    *,
    chunk_id: str = "d1-g1-00000",
    document_id: str = "d1",
    page: int = 1,
    index: int = 0,
    context: str = "",
    heading_path: tuple[str, ...] = (),
    records: tuple[dict[str, str], ...] = (),
    offset: int = 0,
) -> Chunk:
    """Return a chunk of one span that begins at `offset` of its page."""
    return Chunk(
        id=chunk_id,
        document_id=document_id,
        generation=1,
        index=index,
        text=text,
        spans=(Span(page, offset, offset + len(text)),),
        context=context,
        heading_path=heading_path,
        records=records,
        language=detect_language(text),
    )


def make_passage(text: str, *, rank: int = 0, name: str = "manual.pdf", **fields: object) -> Passage:
    """Return a passage of a chunk made by `make_chunk`."""
    chunk = make_chunk(text, **{"chunk_id": f"c{rank}", "index": rank, **fields})  # type: ignore[arg-type]
    return Passage(chunk=chunk, document_name=name, score=1.0 / (rank + 1), rank=rank)


def make_receipt(
    collection: Collection, *, answer_id: str = "ans_1", now: datetime = COLLECTION.created_at
) -> Receipt:
    """Return a receipt with something in every field."""
    mark = PassageMark("d-g1-00000", "0" * 64, "d", "压机.pdf", 1, 12, 0.5)
    citation = Citation(1, "d", "压机.pdf", 12, "补充氮气\x00", 3, 7, "d-g1-00000", ("维护",))
    return Receipt(
        id=answer_id,
        collection_id=collection.id,
        collection=collection.name,
        created_at=now,
        question="还有别的原因吗",
        query="E-0471 还有别的原因吗",
        language="zh",
        history=(Message("user", "E-0471 怎么处理？"),),
        system="",
        top_k=8,
        preset="technical",
        think=False,
        sampling=Sampling(stop=("\n",), seed=3),
        retrieved=(mark,),
        prompt_chunks=("d-g1-00000",),
        prompt_sha256="f" * 64,
        evidence=0.75,
        evidence_threshold=0.5,
        index_fingerprint="e5",
        index_generation=4,
        model="qwen",
        model_fingerprint="model.bin:1:0",
        mode="generated",
        text="补充氮气[1]。",
        refusal=None,
        citations=(citation,),
        timings_ms={"retrieval": 1.5, "total": 20.0},
    )


class Library:
    """Chunks in memory behind the four ports that retrieval needs; a bag of words is a vector."""

    def __init__(self, *chunks: tuple[Chunk, str]) -> None:
        self.chunks = {chunk.id: (chunk, name) for chunk, name in chunks}
        self.hidden: set[str] = set()
        self.query_sizes: list[int] = []
        self.pages: dict[tuple[str, int], Page] = {}
        self.pages_read: list[tuple[str, int]] = []

    # -- embedder
    fingerprint = "words"
    dimension = 4096
    max_tokens = 10_000

    def count_tokens(self, text: str) -> int:
        return len(text)

    def embed_query(self, text: str) -> Vectors:
        vector = np.zeros(self.dimension, dtype=np.float32)
        for term in get_all_terms(text):
            vector[sum(ord(char) * 31**place for place, char in enumerate(term)) % self.dimension] = 1.0
        norm = float(np.linalg.norm(vector))
        return (vector / norm if norm else vector).astype(np.float32)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self.embed_query(text) for text in texts])

    # -- vector store and lexical index
    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        return len(self.chunks)

    def find_code(
        self, collection_id: str, code: str, *, top_k: int, document_keys: Sequence[str] | None = None
    ) -> list[ScoredId]:
        return [
            ScoredId(chunk.id, 1.0)
            for chunk, _ in self.list_chunks(document_keys)
            if canonicalise(code) in {mention.canonical for mention in iter_codes(chunk.indexed_text)}
        ][:top_k]

    def list_codes(self, collection_id: str, *, prefix: str = "") -> list[str]:
        texts = [chunk.indexed_text for chunk, _ in self.chunks.values()]
        codes = {mention.canonical for text in texts for mention in iter_codes(text)}
        return sorted(code for code in codes if code.startswith(prefix))

    def list_chunks(self, document_keys: Sequence[str] | None) -> list[tuple[Chunk, str]]:
        return [
            (chunk, name)
            for chunk, name in self.chunks.values()
            if document_keys is None or _make_key(chunk) in document_keys
        ]

    # -- catalog
    def list_visible_keys(self, collection_id: str, scope: Scope) -> list[str]:
        shown = [pair for pair in self.chunks.values() if pair[0].id not in self.hidden]
        keys = {_make_key(chunk) for chunk, name in shown if {name, chunk.document_id} & {*scope.documents}}
        return sorted(keys)

    def find_visible_chunks(self, chunk_ids: Sequence[str]) -> dict[str, tuple[Chunk, str]]:
        return {item: self.chunks[item] for item in chunk_ids if item not in self.hidden}

    def find_laid_out_page(self, document_id: str, page_number: int) -> Page | None:
        self.pages_read.append((document_id, page_number))
        return self.pages.get((document_id, page_number))


class DenseSide:
    """The vector store's half of a library."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        return self._library.count(collection_id)

    def query(
        self,
        collection_id: str,
        vector: Vectors,
        *,
        top_k: int,
        language: str | None = None,
        document_keys: Sequence[str] | None = None,
    ) -> list[ScoredId]:
        self._library.query_sizes.append(top_k)
        scored = [
            ScoredId(chunk.id, float(self._library.embed_query(chunk.indexed_text) @ vector))
            for chunk, _ in self._library.list_chunks(document_keys)
            if language in (None, chunk.language)
        ]
        return sorted(scored, key=lambda item: -item.score)[:top_k]

    def fetch_vectors(self, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        chunks = self._library.chunks
        return {item: self._library.embed_query(chunks[item][0].indexed_text) for item in chunk_ids}


class LexicalSide:
    """The lexical index's half of a library."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.find_code = library.find_code
        self.list_codes = library.list_codes

    def query(
        self, collection_id: str, text: str, *, top_k: int, document_keys: Sequence[str] | None = None
    ) -> list[ScoredId]:
        terms = get_all_terms(text)
        scored = [
            ScoredId(chunk.id, float(len(terms & get_all_terms(chunk.indexed_text))))
            for chunk, _ in self._library.list_chunks(document_keys)
        ]
        return sorted((item for item in scored if item.score), key=lambda item: -item.score)[:top_k]


class CharCounter:
    """Counts a token per four characters and five per message."""

    def count_text(self, text: str) -> int:
        return (len(text) + 3) // 4

    def count_messages(self, messages: Sequence[Message]) -> int:
        return 3 + sum(5 + self.count_text(message.content) for message in messages)

    def neutralise(self, text: str) -> str:
        return text.replace("<|", "< |")


class Script:
    """A generator that says what it was told to, in pieces of a few characters."""

    def __init__(
        self,
        text: str,
        *,
        piece: int = 3,
        mode: str = "generated",
        finish_reason: str = "stop",
        fails_after: int | None = None,
        context_limit: int | None = 4000,
        tokens: int = 100,
    ) -> None:
        self._text = text
        self._piece = piece
        self.mode = mode
        self.name = f"script-{mode}"
        self._finish_reason = finish_reason
        self._fails_after = fails_after
        self._context_limit = context_limit
        self._tokens = tokens
        self.requests: list[GenerationRequest] = []
        self.pieces_sent = 0
        self.closed = False

    def get_context_limit(self) -> int:
        if self._context_limit is None:
            raise GeneratorUnavailableError("down")
        return self._context_limit

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        self.requests.append(request)
        try:
            for start in range(0, len(self._text), self._piece):
                if self._fails_after is not None and start >= self._fails_after:
                    raise GeneratorUnavailableError("gone")
                self.pieces_sent += 1
                yield GenerationDelta(self._text[start : start + self._piece])
            if self._fails_after is not None:
                raise GeneratorUnavailableError("gone")
            yield GenerationEnd(
                self._finish_reason, prompt_tokens=self._tokens, completion_tokens=self._tokens // 5
            )
        finally:
            self.closed = True

    def ping(self) -> str:
        return self.name


def _make_key(chunk: Chunk) -> str:
    return f"{chunk.document_id}-g{chunk.generation}"
