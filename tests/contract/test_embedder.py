"""What every Embedder promises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.adapters.hashing_embedder import HashingEmbedder
from kb.adapters.st_embedder import SentenceTransformersEmbedder
from kb.ports import Embedder
from tests.service import find_models_dir
from tests.tiny_models import make_embedder


def _open_tiny(tmp: Path) -> Embedder:
    return SentenceTransformersEmbedder(path=make_embedder(tmp / "tiny"), device="cpu", batch_size=2)


def _open_starter(_tmp: Path) -> Embedder:
    path = find_models_dir() / "embedder"
    return SentenceTransformersEmbedder(path=path, device="cpu", batch_size=4)


EMBEDDERS: dict[str, Callable[[Path], Embedder]] = {
    "hashing": lambda _tmp: HashingEmbedder(),
    "sentence-transformers": _open_tiny,
    "starter": _open_starter,
}


@pytest.fixture(scope="module", params=list(EMBEDDERS.values()), ids=list(EMBEDDERS))
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    opener: Callable[[Path], Embedder] = request.param
    return opener(tmp_path_factory.mktemp("embedder"))


def test_passages_are_unit_rows_in_order(embedder: Embedder) -> None:
    texts = ["液压油温过高", "The pump is too hot.", "E-0471", "x" * 40, "液压油温过高"]

    rows = embedder.embed_passages(texts)

    assert rows.shape == (5, embedder.dimension)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.allclose(rows[0], rows[4], atol=1e-5)
    assert np.allclose(rows[2], embedder.embed_passages(["E-0471"])[0], atol=1e-4)


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    rows = embedder.embed_passages([])

    assert rows.shape == (0, embedder.dimension)
    assert rows.dtype == np.float32


@pytest.mark.parametrize("text", ["", " \n", "\ud800", "🙂", "\x00", "。", "ＦＵＬＬ　ＷＩＤＴＨ", "e\u0301"])
def test_every_string_has_a_unit_vector(embedder: Embedder, text: str) -> None:
    passage = embedder.embed_passages([text])[0]
    query = embedder.embed_query(text)

    assert np.isclose(np.linalg.norm(passage), 1, atol=1e-5)
    assert np.isclose(np.linalg.norm(query), 1, atol=1e-5)


def test_a_query_is_one_vector(embedder: Embedder) -> None:
    vector = embedder.embed_query("油温过高怎么办")

    assert vector.shape == (embedder.dimension,)
    assert vector.dtype == np.float32


def test_a_text_of_exactly_the_limit_is_embedded_and_one_more_token_is_refused(embedder: Embedder) -> None:
    longest = "油"
    while embedder.count_tokens(longest + "油") <= embedder.max_tokens:
        longest += "油"

    rows = embedder.embed_passages(["short", longest])

    assert rows.shape == (2, embedder.dimension)
    with pytest.raises(ValueError, match="text 1 has"):
        embedder.embed_passages(["short", longest + "油油油油"])


def test_a_long_query_is_cut(embedder: Embedder) -> None:
    vector = embedder.embed_query("油温 " * 3000)

    assert np.isclose(np.linalg.norm(vector), 1, atol=1e-5)


def test_the_empty_text_has_no_tokens(embedder: Embedder) -> None:
    assert embedder.count_tokens("") == 0
    assert embedder.count_tokens("pump 泵") > 0


def test_the_fingerprint_is_short_and_stable(embedder: Embedder) -> None:
    assert embedder.fingerprint == embedder.fingerprint
    assert 0 < len(embedder.fingerprint) <= 40


def test_threads_get_the_same_vectors(embedder: Embedder) -> None:
    texts = [f"pump {number}" for number in range(8)]
    expected = embedder.embed_passages(texts)
    found: dict[int, bool] = {}

    def embed(index: int) -> None:
        row = embedder.embed_passages([texts[index]])[0]
        found[index] = bool(np.allclose(row, expected[index], atol=1e-4))

    threads = [threading.Thread(target=embed, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == dict.fromkeys(range(8), True)


@settings(max_examples=30, deadline=None)
@given(text=st.text(max_size=600))
def test_a_text_within_the_counted_limit_is_never_refused(embedder: Embedder, text: str) -> None:
    while embedder.count_tokens(text) > embedder.max_tokens:
        text = text[: len(text) // 2]

    assert embedder.embed_passages([text]).shape == (1, embedder.dimension)


def test_the_starter_embedder_finds_the_passage_that_means_the_same() -> None:
    embedder = _open_starter(Path())
    passages = [
        "E-0471 油温过高：清洗冷却器，检查冷却风扇是否转动。",
        "设备铭牌位于控制柜右侧，请勿移除。",
        "每年由有资质的人员检查急停按钮。",
    ]

    rows = embedder.embed_passages(passages)
    scores = rows @ embedder.embed_query("液压油太烫了怎么办？")

    assert int(scores.argmax()) == 0
    assert (embedder.dimension, embedder.max_tokens) == (384, 507)
