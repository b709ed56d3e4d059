"""What a test may see of a running service beside its API: the queue and the indexes themselves."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from kb.adapters.celery_queue import CeleryIngestQueue
from kb.adapters.chroma_store import ChromaStore
from kb.adapters.fts_lexical import FtsLexicalIndex
from tests.service import Service


def read_state(service: Service) -> dict[str, Any]:
    """Return the processes and addresses that `kb up` wrote down."""
    state: dict[str, Any] = json.loads((service.data_dir / "run" / "state.json").read_text("utf-8"))
    return state


def deliver_again(service: Service, job_id: str, *, times: int) -> None:
    """Put more messages for the same job into the queue."""
    with closing(CeleryIngestQueue(redis_url=read_state(service)["redis_url"])) as queue:
        for _ in range(times):
            queue.submit(job_id)


def count_index_entries(service: Service, collection: str) -> tuple[int, int]:
    """Return how many vectors and lexical entries the collection has, visible or not."""
    collection_id = service.http.get(f"/v1/collections/{collection}").json()["id"]
    with closing(FtsLexicalIndex(service.data_dir / "lexical.sqlite")) as lexical:
        vectors = ChromaStore(read_state(service)["chroma_url"])
        return vectors.count(collection_id), lexical.count(collection_id)
