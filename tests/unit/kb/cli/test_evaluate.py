from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from kb.cli.scratch import NotIngestedError, scratch_collection
from kb.client import KbClient
from kb.question_sets import load_set
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


CORPUS = [
    {"id": "p1", "title": "Pump", "text": "Close valve V2."},
    {"id": "p2", "text": "Change the filter yearly."},
    {"id": "p3", "text": "Change the filter yearly."},
]
QUERIES = [
    {"id": "q1", "text": "valve", "gold_ids": ["p1"], "kind": "code", "answers": ["V2"]},
    {"id": "q2", "text": "filter", "gold_ids": ["p3"], "kind": "fact"},
    {"id": "q3", "text": "the moon", "gold_ids": [], "answerable": False, "kind": "fact"},
]


@pytest.fixture(autouse=True)
def _state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = tmp_path / "pumps"
    path.mkdir()
    for name, rows in (("corpus", CORPUS), ("queries", QUERIES)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return str(path)


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
    assert report["refusal"] == {"precision": 1.0, "recall": 1.0, "false": 0.0}
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


def test_each_index_alone_is_measured_unless_told_otherwise(run: Run, questions: str, state: State) -> None:
    report = run("eval", questions, "--retrieval-only", "--json", "-").json

    assert report["plain"]["lexical"]["hit@5"] == report["plain"]["dense"]["hit@5"] == 0.5
    assert state.modes == ["hybrid", "lexical", "dense"] * 3
    assert run("eval", questions, "--no-answers", "--no-compare", "--json", "-").json["plain"] == {}


def test_a_folder_is_asked_in_a_collection_of_its_own_that_is_dropped(
    run: Run, folder: str, state: State, tmp_path: Path
) -> None:
    results = tmp_path / "results.json"

    ended = run("eval", folder, "--json", "-", "--results", str(results))

    report = ended.json
    assert state.collections == {}
    assert report["retrieval"]["hit@1"] == 0.5
    assert report["plain"]["dense"]["hit@1"] == 0
    assert report["groups"]["kind code"]["mrr@10"] == 1
    assert report["latency_ms"]["search"]["median"] > 0
    # texts that are equal are one document and stand for both
    assert json.loads(results.read_text("utf-8")) == {
        "q1": ["p1", "p2", "p3"],
        "q2": ["p2", "p3", "p1"],
        "q3": ["p1", "p2", "p3"],
    }
    answers = json.loads((tmp_path / "results.answers.json").read_text("utf-8"))
    assert answers["q3"] == {
        "answer": "The documents do not say.",
        "refused": True,
        "reason": "below_threshold",
        "evidence": [],
    }
    assert answers["q1"]["refused"] is False


def test_the_names_of_a_folders_documents_say_nothing(run: Run, folder: str, state: State) -> None:
    run("eval", folder, "--retrieval-only", "--keep")

    (documents,) = state.collections.values()
    assert sorted(item.name for item in documents.values()) == ["0000000.txt", "0000001.txt"]


def test_a_kept_collection_is_used_again(run: Run, folder: str, state: State) -> None:
    run("eval", folder, "--retrieval-only", "--keep")
    state.bodies["0000000.txt"] += b" (not sent again)"
    (name,) = state.collections

    ended = run("eval", folder, "--retrieval-only", "--keep")

    assert list(state.collections) == [name]
    assert f"Kept the collection {name!r}" in ended.out
    assert state.bodies["0000000.txt"].endswith(b"(not sent again)")


def test_a_folders_collection_is_dropped_after_an_error(run: Run, folder: str, state: State) -> None:
    state.search_error = True

    ended = run("eval", folder, "--retrieval-only")

    assert ended.code == 1
    assert state.collections == {}


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_folders_collection_is_dropped_after_ctrl_c(
    client: KbClient, folder: str, state: State, end: type[BaseException]
) -> None:
    names: list[str] = []

    def stop_in_the_middle() -> None:
        with scratch_collection(client, load_set(Path(folder)), keep=False, console=Console(quiet=True)):
            names.extend(state.collections)
            raise end

    with pytest.raises(end):
        stop_in_the_middle()

    assert len(names) == 1
    assert state.collections == {}


def test_nobody_at_work_ends_the_evaluation_of_a_folder(client: KbClient, folder: str, state: State) -> None:
    state.stuck_jobs, state.stalled_reason = True, "no_live_worker"
    opened = scratch_collection(
        client, load_set(Path(folder)), keep=False, console=Console(quiet=True), patience_s=0
    )

    with pytest.raises(NotIngestedError, match="no_live_worker"):
        opened.__enter__()

    assert state.collections == {}


def test_a_folder_takes_no_collection(run: Run, folder: str) -> None:
    assert run("eval", folder, "-c", "press").code == 2


def test_a_run_is_compared_with_the_baseline_that_was_kept(run: Run, folder: str) -> None:
    assert "Written to" in run("eval", folder, "--retrieval-only", "--baseline").out

    ended = run("eval", folder, "--retrieval-only", "--json", "-")

    changes = ended.json["baseline"]["changes"]
    assert changes["retrieval.hit@1"] == changes["groups.kind fact.hit@1"] == 0
    assert "change" in run("eval", folder, "--retrieval-only").out
    assert run("eval", folder, "--retrieval-only", "--limit", "2", "--json", "-").json["baseline"] is None


def test_a_limit_takes_the_same_questions_each_time(run: Run, folder: str) -> None:
    first, second = (
        run("eval", folder, "--retrieval-only", "--limit", "2", "--seed", "4", "--json", "-").json
        for _ in range(2)
    )

    assert first["questions"] == 2
    assert [item["id"] for item in first["outcomes"]] == [item["id"] for item in second["outcomes"]]
