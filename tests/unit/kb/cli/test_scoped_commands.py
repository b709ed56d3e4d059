"""Commands about some documents, about what became of a page, and about the evidence that answers need."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kb.client import KbClient
from kb.schemas import CalibrationOut, ExplainOut
from tests.unit.kb.cli.conftest import Run
from tests.unit.kb.cli.fake_service import State

QUESTIONS = [
    *({"question": f"good {n}", "document": "a.pdf"} for n in range(4)),
    *({"question": f"bad {n}", "answerable": False} for n in range(5)),
]
EVIDENCE = {"good 0": 0.9, "good 1": 0.8, "good 2": 0.7, "good 3": 0.5} | {
    f"bad {n}": value for n, value in enumerate((0.6, 0.4, 0.3, 0.2, 0.1))
}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, QUESTIONS)), "utf-8")
    return path


def test_a_search_may_be_limited(run: Run, client: KbClient, state: State) -> None:
    client.create_collection("default")

    ended = run(
        *("search", "E-0471", "--document", "press.pdf", "--tag", "line 2", "--tag", "press"),
        *("--language", "zh", "--from", "2026-03-01", "--before", "2026-04-01"),
    )

    assert ended.code == 0
    assert "an answer needs 0.50" in ended.out
    (scope,) = state.scopes
    assert (scope.documents, scope.tags, scope.language) == (["press.pdf"], ["line 2", "press"], "zh")
    assert scope.uploaded_from == datetime(2026, 3, 1, tzinfo=UTC)
    assert scope.uploaded_before == datetime(2026, 4, 1, tzinfo=UTC)
    assert run("search", "x", "--language", "fr").code == 2


def test_a_document_is_tagged(run: Run, client: KbClient, make_file: Callable[..., Path]) -> None:
    client.create_collection("default")
    document = client.upload("default", make_file("a.txt"), tags=["press"]).document
    assert document is not None

    assert "line 2, press" in run("documents", "tag", document.id, "line 2", "press").out
    assert "no tags" in run("documents", "tag", document.id).out


def test_explain_shows_ranks_and_the_stage_that_lost_a_page(run: Run, client: KbClient) -> None:
    client.create_collection("default")

    ended = run("explain", "油温过高怎么办？", "press.pdf", "--page", "9")

    assert ended.code == 0
    for words in ("fusion", "other passages ranked better", "evidence 0.62", " 15 ", " 12 ", "–"):
        assert words in ended.out
    found = ExplainOut.model_validate(run("explain", "x", "press.pdf", "--json").json)
    assert found.chunks[0].ranks["result"] is None


def test_a_threshold_is_measured_and_kept(run: Run, client: KbClient, state: State, questions: Path) -> None:
    client.create_collection("default")
    state.evidence = EVIDENCE

    ended = run("calibrate", "--set", str(questions), "--target-false-answers", "0.2")

    assert ended.code == 0
    assert "an answer needs evidence of 0.450" in ended.out
    assert "20.0% of 5 unanswerable questions pass" in ended.out
    kept = state.calibrations["default"]
    assert (kept.false_answers, kept.false_refusals, kept.answerable) == (0.2, 0.0, 4)
    strict = run("calibrate", "--set", str(questions), "--target-false-answers", "0", "--json")
    assert CalibrationOut.model_validate(strict.json).threshold == pytest.approx(0.65)


def test_a_stale_threshold_is_told_by_the_exit_code(run: Run, state: State, questions: Path) -> None:
    run("collections", "create", "default")
    state.evidence = EVIDENCE
    assert run("calibrate", "--check").code == 1
    run("calibrate", "--set", str(questions))
    assert run("calibrate", "--check").code == 0

    kept = state.calibrations["default"]
    state.calibrations["default"] = kept.model_copy(update={"changed": ["embedder"]})
    ended = run("calibrate", "--check")

    assert ended.code == 1
    assert "embedder changed since" in ended.out
    assert run("calibrate", "--reset").code == 0
    assert state.calibrations == {}
    assert run("calibrate").code == 2


def test_too_few_questions_are_an_error_with_a_way_out(run: Run, client: KbClient, tmp_path: Path) -> None:
    client.create_collection("default")
    path = tmp_path / "few.jsonl"
    path.write_text(json.dumps(QUESTIONS[0]), "utf-8")

    ended = run("calibrate", "--set", str(path))

    assert ended.code == 1
    assert "too few" in ended.err
    assert "at least 5" in ended.err
