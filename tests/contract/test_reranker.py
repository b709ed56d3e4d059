"""What every Reranker promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb.adapters.st_reranker import SentenceTransformersReranker
from kb.errors import ModelCorruptError, ModelMissingError
from kb.ports import Reranker
from tests.tiny_models import make_reranker

TEXTS = ["油温过高", "The pump is too hot.", "泵" * 2000, ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reranker(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def reranker(folder: Path) -> Reranker:
    return SentenceTransformersReranker(path=folder, device="cpu")


def test_each_text_has_a_score_from_0_to_1_that_depends_on_the_query(reranker: Reranker) -> None:
    scores = reranker.score("油温过高怎么办", TEXTS)

    assert len(scores) == len(TEXTS)
    assert all(0 <= score <= 1 for score in scores)
    assert len(set(scores)) > 1
    assert reranker.score("pump", TEXTS) != scores


def test_a_score_does_not_depend_on_the_other_texts(reranker: Reranker) -> None:
    together = reranker.score("油温过高", TEXTS)

    alone = [reranker.score("油温过高", [text])[0] for text in TEXTS]

    assert together == pytest.approx(alone, abs=1e-3)
    assert reranker.score("油温过高", []) == []


def test_half_a_surrogate_pair_is_no_error(reranker: Reranker) -> None:
    assert len(reranker.score("\ud800", ["\udc00"])) == 1


def test_the_fingerprint_names_the_files(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    first = SentenceTransformersReranker(path=copy, device="cpu").fingerprint
    (copy / "config.json").write_bytes((copy / "config.json").read_bytes() + b" ")

    assert first == SentenceTransformersReranker(path=folder, device="cpu").fingerprint
    assert first != SentenceTransformersReranker(path=copy, device="cpu").fingerprint


def test_a_folder_without_a_usable_model_says_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError):
        SentenceTransformersReranker(path=tmp_path, device="cpu")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(ModelCorruptError):
        SentenceTransformersReranker(path=tmp_path, device="cpu").score("x", ["y"])
