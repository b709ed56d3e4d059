"""Vectors in a Chroma server, one Chroma collection per collection, reached over HTTP only.

Chroma's embedded client breaks its files when two processes write, so there is always a server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import tenacity

from kb.errors import ConfigurationError, VectorStoreUnavailableError
from kb.ports import VectorRecord, Vectors
from kb.types import ScoredId

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

# The server refuses more than 5,461 rows a call.
_ROWS_PER_CALL = 5_000
# Can only be set when a collection is created. Measured on hard data: recall .99, with the defaults .53.
_HNSW = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200, "ef_search": 200}
_TIMEOUT = httpx.Timeout(120.0, connect=5.0)


class ChromaStore:
    """Vector store in the Chroma server at `url`, which may come and go.

    Connects at the first call. To be built after a fork: HTTP connections must not be shared.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(
                f"{url!r} is not the address of a Chroma server",
                next_step="Write KB_CHROMA_URL as http://host:port.",
            )
        self._url = url
        self._host = parts.hostname
        self._is_tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 8000)
        self._client: ClientAPI | None = None
        self._lock = threading.Lock()

    def ensure_collection(self, collection_id: str, *, dimension: int) -> None:  # noqa: ARG002 - set by the first vector
        with self._translated_errors():
            self._connect().get_or_create_collection(
                collection_id, configuration={"hnsw": dict(_HNSW)}, embedding_function=None
            )

    def upsert(self, collection_id: str, records: Sequence[VectorRecord]) -> None:
        if not records:
            return
        unique = list({record.chunk_id: record for record in records}.values())
        with self._translated_errors():
            space = self._find(collection_id)
            if space is None:
                raise VectorStoreUnavailableError(f"no space for collection {collection_id!r}")
            for start in range(0, len(unique), _ROWS_PER_CALL):
                batch = unique[start : start + _ROWS_PER_CALL]
                space.upsert(
                    ids=[record.chunk_id for record in batch],
                    embeddings=np.stack([record.vector for record in batch]),
                    metadatas=[
                        {"document_key": record.document_key, "language": record.language} for record in batch
                    ],
                )

    def query(
        self,
        collection_id: str,
        vector: Vectors,
        *,
        top_k: int,
        language: str | None = None,
        document_keys: Sequence[str] | None = None,
    ) -> list[ScoredId]:
        if top_k < 1 or (document_keys is not None and not document_keys):
            return []
        with self._translated_errors():
            space = self._find(collection_id)
            if space is None:
                return []
            where = _build_filter(language, document_keys)
            found = self._query(space, vector, top_k=top_k, where=where)
        scored = [
            ScoredId(chunk_id, 1.0 - float(distance))
            for chunk_id, distance in zip(found["ids"][0], found["distances"][0], strict=True)
        ]
        return sorted(scored, key=lambda item: (-item.score, item.chunk_id))

    def fetch_vectors(self, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        if not chunk_ids:
            return {}
        with self._translated_errors():
            space = self._find(collection_id)
            if space is None:
                return {}
            found = space.get(ids=list(dict.fromkeys(chunk_ids)), include=["embeddings"])
        return {
            chunk_id: np.asarray(vector, dtype=np.float32)
            for chunk_id, vector in zip(found["ids"], found["embeddings"], strict=True)
        }

    def delete_document(self, collection_id: str, document_key: str) -> None:
        with self._translated_errors():
            space = self._find(collection_id)
            if space is not None:
                space.delete(where={"document_key": document_key})

    def delete_collection(self, collection_id: str) -> None:
        from chromadb.errors import NotFoundError

        with self._translated_errors():
            try:
                self._connect().delete_collection(collection_id)
            except NotFoundError:
                return

    def list_chunk_ids(self, collection_id: str, document_key: str) -> set[str]:
        with self._translated_errors():
            space = self._find(collection_id)
            if space is None:
                return set()
            return set(space.get(where={"document_key": document_key}, include=[])["ids"])

    def count(self, collection_id: str, *, document_key: str | None = None) -> int:
        with self._translated_errors():
            space = self._find(collection_id)
            if space is None:
                return 0
            if document_key is None:
                return int(space.count())
        return len(self.list_chunk_ids(collection_id, document_key))

    def ping(self) -> str:
        with self._translated_errors():
            return f"Chroma {self._connect().get_version()}"

    def _query(self, space: Collection, vector: Vectors, *, top_k: int, where: Any) -> Any:
        from chromadb.errors import InternalError

        # While the very first rows of a collection are written, the server answers some queries with
        # "Nothing found on disk"; the next moment the same query succeeds.
        persistently = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(InternalError),
            stop=tenacity.stop_after_attempt(6),
            wait=tenacity.wait_exponential(multiplier=0.02, max=0.5),
            reraise=True,
        )
        return persistently(
            space.query,
            query_embeddings=[vector],
            n_results=top_k,
            include=["distances"],
            where=where,
        )

    def _find(self, collection_id: str) -> Collection | None:
        from chromadb.errors import NotFoundError

        try:
            return self._connect().get_collection(collection_id, embedding_function=None)
        except NotFoundError:
            return None

    def _connect(self) -> ClientAPI:
        with self._lock:
            if self._client is None:
                self._client = self._open()
            return self._client

    def _open(self) -> ClientAPI:
        import chromadb

        try:
            client = chromadb.HttpClient(
                host=self._host,
                port=self._port,
                ssl=self._is_tls,
                settings=chromadb.Settings(anonymized_telemetry=False),
            )
        except ValueError as error:  # what the client makes of a server that does not answer
            raise VectorStoreUnavailableError(f"no Chroma server answers at {self._url!r}") from error
        server: Any = client
        # The client waits for ever by default and has no public option for it.
        server._server._session.timeout = _TIMEOUT
        return client

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        from chromadb.errors import ChromaError

        try:
            yield
        except VectorStoreUnavailableError:
            raise
        except (httpx.HTTPError, ChromaError) as error:
            raise self._unavailable(error) from error
        except Exception as error:
            # The client raises a bare Exception with the body of a response that it cannot read.
            if type(error) is not Exception:
                raise
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> VectorStoreUnavailableError:
        reason = str(error) or type(error).__name__
        return VectorStoreUnavailableError(f"the Chroma server at {self._url!r} failed: {reason}")


def _build_filter(language: str | None, document_keys: Sequence[str] | None) -> dict[str, Any] | None:
    conditions: list[dict[str, Any]] = []
    if language is not None:
        conditions.append({"language": language})
    if document_keys is not None:
        conditions.append({"document_key": {"$in": list(document_keys)}})
    if len(conditions) > 1:
        return {"$and": conditions}
    return conditions[0] if conditions else None
