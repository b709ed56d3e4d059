from __future__ import annotations

import json
from pathlib import Path

import pytest

from kb.client import KbClient
from tests.unit.kb.cli.conftest import Run
from tests.unit.kb.cli.fake_service import State

QUESTIONS = """
[[question]]
id = "press-e0471"
lang = "zh"
kind = "code"
text = "E-0471 是什么故障，怎么处理？"
answerable = true
answers = ["检查吸油滤芯"]
evidence = [{ document = "press_manual_zh.pdf", page = 9 }]

[[question]]
id = "both"
lang = "zh"
kind = "multi"
text = "压机和电话？"
answerable = true
answers = ["电话 110"]
evidence = [{ document = "press_manual_zh.pdf", page = 9 }, { document = "phones.html", page = 1 }]

[[question]]
id = "moon"
lang = "zh"
kind = "unanswerable"
text = "月球多远？"
answerable = false
"""


@pytest.fixture
def questions(client: KbClient, tmp_path: Path) -> str:
    client.create_collection("default")
    path = tmp_path / "questions.toml"
    path.write_text(QUESTIONS, encoding="utf-8")
    return str(path)


def test_each_question_is_a_row_and_the_means_follow(run: Run, questions: str) -> None:
    ended = run("eval", questions)

    assert ended.code == 0
    for words in ("press-e0471", "miss", "refused", "1/1", "2 of 3 questions ok", "hit@5", "0.500"):
        assert words in ended.out


def test_all_results_go_to_a_file(run: Run, questions: str, tmp_path: Path) -> None:
    target = tmp_path / "metrics.json"

    ended = run("eval", questions, "--json", str(target))

    report = json.loads(target.read_text(encoding="utf-8"))
    assert f"Written to {target}" in ended.out.replace("\n", "")
    assert report["retrieval"]["hit@5"] == 0.5
    assert report["retrieval"]["mrr@10"] == 0.5
    assert report["refusal"] == {"precision": 1.0, "recall": 1.0}
    assert report["citations"] == {"count": 2, "valid": 1.0}
    assert report["answers"]["match"] == 0.5
    assert report["outcomes"][0]["retrieved"][1] == [["press_manual_zh.pdf", 9]]


def test_standard_output_holds_nothing_but_the_json(run: Run, questions: str) -> None:
    assert run("eval", questions, "--json", "-").json["judged"] == 3


def test_retrieval_alone_asks_for_no_answer(run: Run, questions: str) -> None:
    report = run("eval", questions, "--no-answers", "--json", "-").json

    assert (report["judged"], report["ok"]) == (2, 1)
    assert report["outcomes"][0]["refused"] is None
    assert "refused" not in run("eval", questions, "--no-answers").out


def test_a_quote_that_is_not_on_its_page_counts_against_citations(
    run: Run, questions: str, state: State
) -> None:
    state.page_text = "Another text."

    report = run("eval", questions, "--json", "-").json

    assert report["citations"]["valid"] == 0


def test_a_page_that_is_gone_makes_its_citation_wrong(run: Run, questions: str, state: State) -> None:
    state.last_page = 8

    assert run("eval", questions, "--json", "-").json["citations"]["valid"] == 0


def test_strict_fails_on_a_miss(run: Run, questions: str) -> None:
    assert run("eval", questions, "--strict").code == 1


def test_a_wrong_file_is_an_error_in_json_too(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "questions.toml"
    path.write_text("[[question]]\nid = 1\n")

    ended = run("eval", str(path), "--json", "-")

    assert ended.code == 1
    assert ended.json["error"]["code"] == "questions_file"
