from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb.question_sets import QuestionsFileError, load_set

QUESTIONS = """
[[question]]
id = "press-e0471"
lang = "zh"
kind = "code"
text = "E-0471 是什么故障，怎么处理？"
answerable = true
answers = ["吸油滤芯"]
evidence = [{ document = "press_manual_zh.pdf", page = 9 }]

[[question]]
id = "moon"
text = "How far is the moon?"
answerable = false
"""


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_lines(
        tmp_path / "pumps" / "corpus.jsonl",
        {"id": "p1", "title": "Pump", "text": "Close valve V2.\u2028Then vent.", "lang": "en"},
        {"id": "p2", "title": "Filter", "text": "Filter: change it yearly."},
    )
    write_lines(
        tmp_path / "pumps" / "queries.jsonl",
        {"id": "q1", "text": "Which valve?", "gold_ids": ["p1"], "gold_ids_xling": ["p2"], "extra": 1},
        {"id": "q2", "text": "How often?", "gold_ids": ["p2"], "answers": ["yearly"], "kind": "fact"},
        {"id": "q3", "text": "月球多远？", "gold_ids": [], "answerable": False},
    )
    return tmp_path / "pumps"


def test_questions_of_a_toml_file_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "questions.toml"
    path.write_text(QUESTIONS, encoding="utf-8")

    first, second = load_set(path).questions

    assert first.text == "E-0471 是什么故障，怎么处理？"
    assert first.places == {("press_manual_zh.pdf", 9)}
    assert first.answer_slots == (("吸油滤芯",),)
    assert (second.places, second.lang, second.kind) == (frozenset(), "en", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("page = 9", "page = 0"), "question 1: evidence.0.page"),
        (('id = "moon"', 'id = "press-e0471"'), "occurs twice"),
        (("answerable = false", "answerable = true"), "no evidence"),
        (("text =", "txt ="), "question 1: text"),
        (("kind =", "knd ="), "question 1: knd"),
        (("[[question]]", "[[question"), "cannot be read"),
        (("[[question]]", "[[ask]]"), "no list 'question'"),
    ],
)
def test_a_wrong_questions_file_names_what_is_wrong(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = tmp_path / "questions.toml"
    path.write_text(QUESTIONS.replace(*change), encoding="utf-8")

    with pytest.raises(QuestionsFileError, match=said):
        load_set(path)


def test_a_missing_questions_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuestionsFileError, match=r"none\.toml"):
        load_set(tmp_path / "none.toml")


def test_json_lines_need_little_more_than_question_and_document(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "own.jsonl",
        {"question": "液压油多久换？", "document": "press.pdf", "page": 12, "answer": "2000 小时"},
        {"question": "Who may weld?", "answer": "Certified staff"},
        {"question": "How far is the moon?"},
    )

    by_page, by_answer, nowhere = load_set(path).questions

    assert (by_page.id, by_page.lang) == ("1", "zh")
    assert by_page.places == {("press.pdf", 12)}
    assert by_answer.answerable
    assert by_answer.places == frozenset()
    assert by_answer.answers == ("Certified staff",)
    assert not nowhere.answerable


def test_a_list_in_json_may_name_files_with_folders_and_ask_for_every_string(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    entry = {
        "id": "O1",
        "text": "Which two?",
        "answers": ["M502", "M500"],
        "answers_rule": "every string",
        "gold": [{"file": "docs/printer.md", "page": None, "section": "EEPROM"}],
        "note": "",
    }
    path.write_text(json.dumps({"about": "x", "questions": [entry]}), encoding="utf-8")

    (question,) = load_set(path).questions

    assert question.places == {("printer.md", None)}
    assert question.is_by_document
    assert question.answer_slots == (("M502",), ("M500",))


def test_a_folder_brings_its_documents_with_their_titles(folder: Path) -> None:
    found = load_set(folder)

    assert found.name == "pumps"
    assert found.texts is not None
    assert {text.id: text.text for text in found.texts} == {
        "p1": "Pump\n\nClose valve V2.\u2028Then vent.",
        "p2": "Filter: change it yearly.",
    }
    first, second, third = found.questions
    assert first.places == {("p1", None)}
    assert first.other_places == {"xling": {("p2", None)}}
    assert (second.kind, second.answerable) == ("fact", True)
    assert not third.answerable


def test_a_broken_line_is_named(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('{"id": "p1", "text": "x"}\n{"id": "p2"', encoding="utf-8")

    with pytest.raises(QuestionsFileError, match="line 2 is no JSON"):
        load_set(folder)


def test_a_sample_is_the_same_for_the_same_seed_and_has_a_fingerprint_of_its_own(folder: Path) -> None:
    found = load_set(folder)

    samples = {seed: found.sample(2, seed=seed) for seed in range(6)}

    assert found.sample(2, seed=3) == samples[3]
    assert len({sample.fingerprint for sample in samples.values()}) > 1
    assert all(sample.fingerprint != found.fingerprint for sample in samples.values())
    assert found.sample(3, seed=1) == found.sample(None, seed=1) == found
