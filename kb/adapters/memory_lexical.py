"""BM25 in memory, for tests and small trials."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from kb.lexemes import CODE_PREFIX, code_term, list_query_terms, list_single_characters, tokenise
from kb.ports import LexicalEntry
from kb.types import ScoredId

# Robertson and Zaragoza (2009), and what SQLite's FTS5 uses.
_K1 = 1.2
_B = 0.75


class MemoryLexicalIndex:
    """Lexical index whose content ends with the process."""

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, tuple[str, Counter[str]]]] = {}
        self._lock = threading.Lock()

    def upsert(self, collection_id: str, entries: Sequence[LexicalEntry]) -> None:
        counted = {entry.chunk_id: (entry.document_key, Counter(tokenise(entry.text))) for entry in entries}
        with self._lock:
            self._spaces.setdefault(collection_id, {}).update(counted)

    def query(
        self, collection_id: str, text: str, *, top_k: int, document_keys: Sequence[str] | None = None
    ) -> list[ScoredId]:
        terms = [*list_query_terms(text), *list_single_characters(text)]
        return self._rank(collection_id, terms, top_k=top_k, document_keys=document_keys)

    def find_code(
        self, collection_id: str, code: str, *, top_k: int, document_keys: Sequence[str] | None = None
    ) -> list[ScoredId]:
        return self._rank(collection_id, [code_term(code)], top_k=top_k, document_keys=document_keys)

    def list_codes(self, collection_id: str, *, prefix: str = "") -> list[str]:
        first = f"{CODE_PREFIX}{prefix.lower()}"
        with self._lock:
            terms = {term for _, counts in self._spaces.get(collection_id, {}).values() for term in counts}
        return sorted(term.removeprefix(CODE_PREFIX).upper() for term in terms if term.startswith(first))

    def delete_document(self, collection_id: str, document_key: str) -> None:
        with self._lock:
            space = self._spaces.get(collection_id, {})
            for chunk_id in [chunk_id for chunk_id, (key, _) in space.items() if key == document_key]:
                del space[chunk_id]

    def delete_collection(self, collection_id: str) -> None:
        with self._lock:
            self._spaces.pop(collection_id, None)

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        with self._lock:
            space = self._spaces.get(collection_id, {})
            return {chunk_id for chunk_id, (key, _) in space.items() if key == document_key}

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        with self._lock:
            return sum(
                1 for key, _ in self._spaces.get(collection_id, {}).values() if document_key in (None, key)
            )

    def ping(self) -> str:
        return "memory"

    def _rank(
        self,
        collection_id: str,
        terms: Iterable[str],
        *,
        top_k: int,
        document_keys: Sequence[str] | None,
    ) -> list[ScoredId]:
        with self._lock:
            entries = dict(self._spaces.get(collection_id, {}))
        space = {chunk_id: counts for chunk_id, (_, counts) in entries.items()}
        if not space:
            return []
        average = sum(map(Counter.total, space.values())) / len(space)
        scores: Counter[str] = Counter()
        for term in terms:
            holders = {chunk_id: counts for chunk_id, counts in space.items() if term in counts}
            # A term in more than half of the entries still counts a little, as in FTS5.
            weight = max(math.log((len(space) - len(holders) + 0.5) / (len(holders) + 0.5)), 1e-6)
            for chunk_id, counts in holders.items():
                length = 1 - _B + _B * counts.total() / average
                scores[chunk_id] += weight * counts[term] * (_K1 + 1) / (counts[term] + _K1 * length)  # type: ignore[assignment]  # a Counter of floats
        ranked = sorted(
            (
                (chunk_id, score)
                for chunk_id, score in scores.items()
                if document_keys is None or entries[chunk_id][0] in document_keys
            ),
            key=lambda item: (-item[1], item[0]),
        )
        return [ScoredId(chunk_id, float(score)) for chunk_id, score in ranked[: max(top_k, 0)]]
