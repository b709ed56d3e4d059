"""Every vector store keeps the promises of `kb.ports.VectorStore`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kb.adapters.chroma_store import ChromaStore
from kb.adapters.memory_store import MemoryStore
from kb.errors import ConfigurationError, VectorStoreUnavailableError
from kb.ports import VectorRecord, Vectors, VectorStore
from tests.servers import ChromaServer, find_free_port, running_chroma

DIMENSION = 8

Opener = Callable[[pytest.FixtureRequest], VectorStore]

STORES: dict[str, Opener] = {
    "memory": lambda request: MemoryStore(),
    "chroma": lambda request: ChromaStore(request.getfixturevalue("chroma_server").url),
}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> VectorStore:
    return STORES[request.param](request)


@pytest.fixture
def collection(store: VectorStore) -> Iterator[str]:
    name = new_collection_id()
    store.ensure_collection(name, dimension=DIMENSION)
    yield name
    store.delete_collection(name)


def new_collection_id() -> str:
    return f"col_{uuid.uuid4().hex[:16]}"


def unit(*values: float) -> Vectors:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(values)] = values
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def record(chunk_id: str, *values: float, key: str = "doc_a-g1") -> VectorRecord:
    return VectorRecord(chunk_id=chunk_id, document_key=key, vector=unit(*values), language="en")


def test_query_returns_the_nearest_first_with_their_cosine(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record("far", -1), record("near", 1, 0.1), record("side", 0, 1)])

    found = store.query(collection, unit(1), top_k=3)

    assert [item.chunk_id for item in found] == ["near", "side", "far"]
    assert [item.score for item in found] == pytest.approx([1 / np.sqrt(1.01), 0.0, -1.0], abs=1e-5)


def test_query_returns_at_most_top_k(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record(f"c{index}", 1, index) for index in range(5)])

    assert len(store.query(collection, unit(1), top_k=2)) == 2
    assert len(store.query(collection, unit(1), top_k=50)) == 5
    assert store.query(collection, unit(1), top_k=0) == []


def test_query_may_ask_for_one_language(store: VectorStore, collection: str) -> None:
    chinese = VectorRecord(chunk_id="zh", document_key="doc_a-g1", vector=unit(0, 1), language="zh")
    store.upsert(collection, [record("en", 1), chinese])

    assert [item.chunk_id for item in store.query(collection, unit(1), top_k=5, language="zh")] == ["zh"]
    assert store.query(collection, unit(1), top_k=5, language="fr") == []


def test_query_may_be_limited_to_documents(store: VectorStore, collection: str) -> None:
    chinese = VectorRecord(chunk_id="zh", document_key="doc_b-g1", vector=unit(0, 1), language="zh")
    store.upsert(collection, [record("a", 1), record("b", 1, 0.1, key="doc_b-g1"), chinese])

    def find(keys: list[str], language: str | None = None) -> list[str]:
        found = store.query(collection, unit(1), top_k=5, language=language, document_keys=keys)
        return [item.chunk_id for item in found]

    assert find(["doc_b-g1"]) == ["b", "zh"]
    assert find(["doc_b-g1"], "zh") == ["zh"]
    assert find(["doc_a-g1", "doc_b-g1", "absent"]) == ["a", "b", "zh"]
    assert find([]) == []


def test_stored_vectors_come_back_by_id(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record("a", 1, 2), record("b", 3)])

    found = store.fetch_vectors(collection, ["b", "a", "a", "absent"])

    assert set(found) == {"a", "b"}
    assert found["a"].dtype == np.float32
    np.testing.assert_allclose(found["a"], unit(1, 2), atol=1e-6)
    assert store.fetch_vectors(collection, []) == {}
    assert store.fetch_vectors(new_collection_id(), ["a"]) == {}


def test_query_of_an_empty_or_unknown_collection_is_empty(store: VectorStore, collection: str) -> None:
    assert store.query(collection, unit(1), top_k=5) == []
    assert store.query(new_collection_id(), unit(1), top_k=5) == []


def test_equal_scores_come_in_the_order_of_their_ids(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record(name, 1) for name in ("b", "c", "a")])

    assert [item.chunk_id for item in store.query(collection, unit(1), top_k=3)] == ["a", "b", "c"]


def test_upsert_replaces_by_id(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record("x", 1, key="doc_a-g1")])
    store.upsert(collection, [record("x", 0, 1, key="doc_b-g1")])
    store.upsert(collection, [record("x", 0, 1, key="doc_b-g1")])

    assert store.count(collection) == 1
    assert store.count(collection, document_key="doc_a-g1") == 0
    assert store.query(collection, unit(0, 1), top_k=1)[0].score == pytest.approx(1.0, abs=1e-5)


def test_the_last_of_equal_ids_in_one_call_wins(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record("x", 1), record("x", 0, 1)])

    assert store.count(collection) == 1
    assert store.query(collection, unit(0, 1), top_k=1)[0].score == pytest.approx(1.0, abs=1e-5)


def test_upsert_of_nothing_changes_nothing(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [])

    assert store.count(collection) == 0


def test_upsert_takes_more_rows_than_a_server_takes_at_once(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record(f"c{index}", 1, index) for index in range(5600)])

    assert store.count(collection) == 5600
    store.delete_document(collection, "doc_a-g1")
    assert store.count(collection) == 0


def test_upsert_into_an_unknown_collection_is_refused(store: VectorStore) -> None:
    with pytest.raises(VectorStoreUnavailableError):
        store.upsert(new_collection_id(), [record("x", 1)])


def test_ensure_collection_keeps_what_is_there(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record("x", 1)])

    store.ensure_collection(collection, dimension=DIMENSION)

    assert store.count(collection) == 1


def test_delete_document_removes_only_its_own_vectors(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record("a1", 1, key="doc_a-g1"), record("a2", 0, 1, key="doc_a-g2")])

    store.delete_document(collection, "doc_a-g1")
    store.delete_document(collection, "doc_a-g1")
    store.delete_document(new_collection_id(), "doc_a-g1")

    assert [item.chunk_id for item in store.query(collection, unit(1), top_k=5)] == ["a2"]
    assert store.count(collection, document_key="doc_a-g1") == 0
    assert store.count(collection, document_key="doc_a-g2") == 1
    assert store.list_chunk_ids(collection, "doc_a-g1") == set()
    assert store.list_chunk_ids(collection, "doc_a-g2") == {"a2"}
    assert store.list_chunk_ids(new_collection_id(), "doc_a-g2") == set()


def test_collections_are_apart(store: VectorStore, collection: str) -> None:
    other = new_collection_id()
    store.ensure_collection(other, dimension=DIMENSION)
    store.upsert(collection, [record("x", 1)])
    store.upsert(other, [record("x", 0, 1), record("y", 0, 1)])

    store.delete_document(other, "doc_a-g1")

    assert (store.count(collection), store.count(other)) == (1, 0)
    store.delete_collection(other)
    assert store.count(collection) == 1


def test_a_deleted_collection_is_gone_and_may_come_back_empty(store: VectorStore) -> None:
    name = new_collection_id()
    store.ensure_collection(name, dimension=DIMENSION)
    store.upsert(name, [record("x", 1)])

    store.delete_collection(name)
    store.delete_collection(name)

    assert store.count(name) == 0
    store.ensure_collection(name, dimension=DIMENSION)
    assert store.query(name, unit(1), top_k=1) == []
    store.delete_collection(name)


def test_ids_may_hold_any_script(store: VectorStore, collection: str) -> None:
    store.upsert(collection, [record("压机-𠀀-🛠-g1", 1, key="文档-g1")])

    assert store.query(collection, unit(1), top_k=1)[0].chunk_id == "压机-𠀀-🛠-g1"
    assert store.count(collection, document_key="文档-g1") == 1


def test_readers_and_writers_may_work_at_once(store: VectorStore, collection: str) -> None:
    start = threading.Barrier(4)

    def write(name: str) -> None:
        start.wait()
        for index in range(10):
            store.upsert(collection, [record(f"{name}{index}", 1, index, key=name)])

    def read() -> bool:
        start.wait()
        return all(len(store.query(collection, unit(1), top_k=5)) <= 5 for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, name) for name in ("a", "b")]
        reads = [pool.submit(read) for _ in range(2)]

        assert all(future.result() for future in reads)
        for future in writes:
            future.result()

    assert store.count(collection) == 20


def test_queries_are_answered_while_the_first_rows_are_written(store: VectorStore) -> None:
    for _ in range(10):
        name = new_collection_id()
        store.ensure_collection(name, dimension=DIMENSION)
        start = threading.Barrier(3)

        def write(name: str = name, start: threading.Barrier = start) -> None:
            start.wait()
            for index in range(5):
                store.upsert(name, [record(f"c{index}", 1, index)])

        def read(name: str = name, start: threading.Barrier = start) -> None:
            start.wait()
            for _ in range(10):
                store.query(name, unit(1), top_k=5)

        with ThreadPoolExecutor(3) as pool:
            for future in [pool.submit(write), pool.submit(read), pool.submit(read)]:
                future.result()

        store.delete_collection(name)


def test_ping_names_the_store(store: VectorStore) -> None:
    assert store.ping()


# -- what only a server can do


def test_chroma_is_asked_at_the_first_call_not_before() -> None:
    store = ChromaStore(f"http://127.0.0.1:{find_free_port()}")

    with pytest.raises(VectorStoreUnavailableError):
        store.ping()


def test_chroma_needs_an_http_url() -> None:
    with pytest.raises(ConfigurationError):
        ChromaStore("127.0.0.1:8000")


def test_chroma_creates_collections_for_cosine_and_hard_data(chroma_server: ChromaServer) -> None:
    import chromadb

    name = new_collection_id()
    ChromaStore(chroma_server.url).ensure_collection(name, dimension=DIMENSION)

    port = int(chroma_server.url.rpartition(":")[2])
    client = chromadb.HttpClient("127.0.0.1", port, settings=chromadb.Settings(anonymized_telemetry=False))
    hnsw = client.get_collection(name, embedding_function=None).configuration_json["hnsw"]
    assert hnsw["space"] == "cosine"
    assert (hnsw["max_neighbors"], hnsw["ef_construction"], hnsw["ef_search"]) == (32, 200, 200)


def test_chroma_may_be_killed_and_started_again_under_a_living_store(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_chroma(tmp_path_factory.mktemp("killed")) as server:
        store = ChromaStore(server.url)
        name = new_collection_id()
        store.ensure_collection(name, dimension=DIMENSION)
        store.upsert(name, [record(f"c{index}", 1, index) for index in range(50)])

        server.kill()

        with pytest.raises(VectorStoreUnavailableError):
            store.query(name, unit(1), top_k=1)
        with pytest.raises(VectorStoreUnavailableError):
            store.upsert(name, [record("late", 1)])

        server.start()

        assert store.count(name) == 50
        store.upsert(name, [record("late", 1)])
        assert store.count(name) == 51
