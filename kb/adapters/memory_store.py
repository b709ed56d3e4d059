"""Vectors in memory with exact search, for tests and small trials."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from kb.errors import VectorStoreUnavailableError
from kb.ports import VectorRecord, Vectors
from kb.types import ScoredId


class MemoryStore:
    """Vector store whose neighbours are exact; its content ends with the process."""

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, VectorRecord]] = {}
        self._lock = threading.Lock()

    def ensure_collection(self, collection_id: str, *, dimension: int) -> None:  # noqa: ARG002 - any fits
        with self._lock:
            self._spaces.setdefault(collection_id, {})

    def upsert(self, collection_id: str, records: Sequence[VectorRecord]) -> None:
        with self._lock:
            space = self._spaces.get(collection_id)
            if space is None:
                raise VectorStoreUnavailableError(f"no space for collection {collection_id!r}")
            space.update({record.chunk_id: record for record in records})

    def query(
        self,
        collection_id: str,
        vector: Vectors,
        *,
        top_k: int,
        language: str | None = None,
        document_keys: Sequence[str] | None = None,
    ) -> list[ScoredId]:
        with self._lock:
            records = list(self._spaces.get(collection_id, {}).values())
        records = [
            record
            for record in records
            if language in (None, record.language)
            and (document_keys is None or record.document_key in document_keys)
        ]
        if not records or top_k < 1:
            return []
        matrix = np.stack([record.vector for record in records])
        norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector)
        cosines = matrix @ vector / np.maximum(norms, np.finfo(np.float32).tiny)
        scored = [
            ScoredId(record.chunk_id, float(cosine)) for record, cosine in zip(records, cosines, strict=True)
        ]
        scored.sort(key=lambda item: (-item.score, item.chunk_id))
        return scored[:top_k]

    def fetch_vectors(self, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        with self._lock:
            space = self._spaces.get(collection_id, {})
            return {chunk_id: space[chunk_id].vector for chunk_id in chunk_ids if chunk_id in space}

    def delete_document(self, collection_id: str, document_key: str) -> None:
        with self._lock:
            space = self._spaces.get(collection_id, {})
            for chunk_id in [key for key, record in space.items() if record.document_key == document_key]:
                del space[chunk_id]

    def delete_collection(self, collection_id: str) -> None:
        with self._lock:
            self._spaces.pop(collection_id, None)

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        with self._lock:
            space = self._spaces.get(collection_id, {})
            return {chunk_id for chunk_id, record in space.items() if record.document_key == document_key}

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        with self._lock:
            records = self._spaces.get(collection_id, {}).values()
            return sum(1 for record in records if document_key in (None, record.document_key))

    def ping(self) -> str:
        return "memory"
