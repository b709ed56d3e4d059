"""The commands that only ask the service."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.client import KbClient
from kb.schemas import AnswerOut, DocumentOut, SearchOut
from tests.unit.kb.cli.conftest import Run
from tests.unit.kb.cli.fake_service import API_KEY, PAGE_TEXT, QUOTE, State, make_document


@pytest.fixture
def document(client: KbClient, make_file: Callable[..., Path]) -> DocumentOut:
    """A document that is ready."""
    return add_document(client, make_file("压机手册.pdf", "x"))


def add_document(client: KbClient, path: Path) -> DocumentOut:
    client.ensure_collection("default")
    found = client.upload("default", path).document
    assert found is not None
    while client.get_job(found.job_id).state not in ("succeeded", "failed"):
        pass
    return found


HEAVY = ("torch", "chromadb", "transformers", "httpx", "fastapi", "celery", "redis", "pydantic", "psutil")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from kb.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"print('loaded', [name for name in {HEAVY!r} if name in sys.modules])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == "loaded []"


def test_help_tells_the_exit_codes(run: Run) -> None:
    ended = run("--help")

    assert ended.code == 0
    for line in ("0 done", "3 the service does not answer", "130 interrupted"):
        assert line in ended.out


@pytest.mark.parametrize(
    "command",
    ["up", "demo", "status", "ingest", "ask", "fault", "search", "eval", "calibrate", "explain"]
    + ["settings", "version"]
    + [f"documents {verb}" for verb in ("list", "show", "text", "tag", "delete")]
    + [f"collections {verb}" for verb in ("list", "create", "delete")]
    + [f"jobs {verb}" for verb in ("list", "show", "cancel", "retry")]
    + [f"models {verb}" for verb in ("list", "pull", "verify")],
)
def test_every_command_has_help_and_json(run: Run, command: str) -> None:
    ended = run(*command.split(), "--help")

    assert ended.code == 0
    assert "--json" in ended.out


def test_wrong_usage_is_two(run: Run) -> None:
    assert run("ask").code == 2
    assert run("no-such-command").code == 2
    assert run("search", "x", "--top-k", "0").code == 2


@pytest.mark.parametrize("command", [("ask", ""), ("search", ""), ("ask", "x" * 40_000)])
def test_what_the_service_would_refuse_is_one_clear_line(run: Run, command: tuple[str, ...]) -> None:
    ended = run(*command)

    assert ended.code == 2
    assert "wrong request: " in ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 4


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").out == run("version").out
    assert set(run("version", "--json").json) == {"version"}


# -- status and settings


def test_status_names_each_part(run: Run, client: KbClient) -> None:
    client.create_collection("压机")

    ended = run("status")

    assert ended.code == 0
    for words in ("ready", "catalog", "sqlite 3.46", "workers", "压机"):
        assert words in ended.out
    assert run("status", "--json").json["collections"][0]["name"] == "压机"


def test_status_is_one_while_a_part_is_down(run: Run, state: State) -> None:
    chroma, workers = state.dependencies[1], state.dependencies[2]
    state.dependencies[1] = chroma.model_copy(update={"ok": False, "detail": "no reply"})
    state.dependencies[2] = workers.model_copy(update={"ok": False})

    ended = run("status")

    assert ended.code == 1
    for words in ("not ready", "no reply", "down, not required", "Next"):
        assert words in ended.out
    assert run("status", "--json").json["ready"] is False


def test_an_absent_service_is_three_and_one_line(run: Run) -> None:
    ended = run("status", KB_API_URL="http://127.0.0.1:1")
    as_json = run("--url", "http://127.0.0.1:1", "status", "--json")

    assert (ended.code, ended.out) == (3, "")
    assert ended.err.splitlines()[0] == "Error the service does not answer at http://127.0.0.1:1"
    assert "kb up" in ended.err.splitlines()[1]
    assert as_json.code == 3
    assert as_json.json["error"]["code"] == "service_unreachable"


def test_a_wrong_key_is_a_matter_of_configuration(run: Run, state: State) -> None:
    state.api_key = API_KEY

    assert run("collections", "list").code == 5
    assert run("collections", "list", KB_API_KEY=API_KEY).code == 0


def test_a_wrong_setting_is_five_and_named(run: Run) -> None:
    ended = run("status", KB_TOPK="3")

    assert ended.code == 5
    assert "KB_TOPK" in ended.err


def test_settings_are_explained_and_secrets_masked(run: Run) -> None:
    secrets = {
        "KB_API_KEY": "secret-secret-secret",
        "KB_GENERATOR_API_KEY": "hush",
        "KB_DATABASE_URL": "postgresql://kb:geheim@db/kb",
        "KB_REDIS_URL": "redis://:losung@cache:6379/0",
        "KB_CHROMA_URL": "http://chroma:8000",
    }

    ended = run("settings", **secrets)
    values = run("settings", "--json").json

    assert "KB_API_PORT" in ended.out
    assert "Port the API listens on." in ended.out
    for secret in ("secret-secret", "hush", "geheim", "losung"):
        assert secret not in ended.out
        assert secret not in str(values)
    assert values["database_url"] == "postgresql://kb:••••••@db/kb"
    assert values["chroma_url"] == "http://chroma:8000"


# -- search and answers


def test_search_shows_place_scores_and_text(run: Run, client: KbClient) -> None:
    client.create_collection("default")

    ended = run("search", "E-0471")

    assert ended.code == 0
    for words in (
        "press_manual_zh.pdf, page 9",
        "故障处理 › E-0471",
        "dense 0.81",
        "17.5 MPa",
        "evidence 0.62",
    ):
        assert words in ended.out
    assert "第 9 页" in run("search", "压力过低", "--full").out
    assert "Nothing found" in run("search", "nothing").out
    assert len(SearchOut.model_validate(run("search", "E-0471", "-k", "1", "--json").json).passages) == 1


def test_an_answer_comes_with_document_page_and_quoted_line(run: Run, client: KbClient) -> None:
    client.create_collection("default")

    chinese, english = run("ask", "E-0471 怎么处理？"), run("ask", "What does F30001 mean?")

    assert chinese.code == english.code == 0
    for words in ("表示压力过低", "来源", "[1] 《press_manual_zh.pdf》第 9 页", f"“{QUOTE}”", "quotes."):
        assert words in chinese.out
    for words in ("means overcurrent", "Sources", "[1] drive_manual_en.pdf, page 9", "extractive ·"):
        assert words in english.out


def test_a_replay_shows_what_changed_and_a_receipt_what_an_answer_was_made_from(run: Run) -> None:
    replayed, shown, missing = run("replay", "ans_1"), run("replay", "ans_1", "--show"), run("replay", "x")

    for words in ("found no more: 压机.pdf, page 12", "补充氮气[1]。", "更换蓄能器[1]。"):
        assert words in replayed.out
    for words in ("E-0471 还有别的原因吗", "model.bin:1:0", "0.75", "1* 压机.pdf, page 12"):
        assert words in shown.out
    assert missing.code == 4
    assert run("replay", "ans_1", "--json").json["removed"] == ["d-g1-00000"]
    assert run("replay", "ans_1", "--show", "--delete").code == 2


def test_an_answer_as_json_is_the_api_s(run: Run, client: KbClient) -> None:
    client.create_collection("default")

    answer = AnswerOut.model_validate(run("ask", "E-0471 怎么处理？", "--json").json)

    assert answer.citations[0].quote == QUOTE


def test_a_refusal_is_an_answer_with_the_nearest_passages(run: Run, client: KbClient) -> None:
    client.create_collection("default")

    chinese, english = run("ask", "月球多远？"), run("ask", "How far is the moon?")

    assert chinese.code == english.code == 0
    for words in ("文档中没有说明", "没有与问题足够接近的段落", "不作为答案", "第 9 页"):
        assert words in chinese.out
    for words in ("The documents do not say", "no passage is close enough", "not an answer", "page 9"):
        assert words in english.out
    assert run("ask", "the moon", "--json").json["refused"] is True


def test_a_cut_answer_says_so(run: Run, client: KbClient) -> None:
    client.create_collection("default")

    assert "cut at the token limit" in run("ask", "a long question about F30001").out


def test_an_answer_that_fails_half_way_is_one(run: Run, client: KbClient) -> None:
    client.create_collection("default")

    ended = run("ask", "crash")

    assert ended.code == 1
    assert "the runtime went away" in ended.err


# -- collections


def test_collections_are_created_listed_and_deleted(run: Run) -> None:
    assert "no collections yet" in run("collections", "list").out
    assert run("collections", "create", "压机").code == 0
    assert run("collections", "create", "压机").code == 1
    assert run("collections", "create", "驱动", "--json").json["name"] == "驱动"
    assert "压机" in run("collections", "list").out
    assert len(run("collections", "list", "--json").json["collections"]) == 2
    assert run("collections", "delete", "压机", answer="n\n").code == 1
    assert run("collections", "delete", "压机", answer="y\n").code == 0
    assert run("collections", "delete", "驱动", "--json").json == {"deleted": "驱动"}
    assert run("collections", "delete", "驱动", "--yes").code == 4


# -- documents


def test_attachments_are_shown_with_what_they_came_with(
    run: Run, document: DocumentOut, state: State
) -> None:
    attached = make_document("default", "mail › 报告.pdf", b"attached", state="failed")
    attached = attached.model_copy(update={"parent_id": document.id})
    state.documents("default")[attached.id] = attached

    listed, parent, child = (
        run("documents", "list"),
        run("documents", "show", document.id),
        run("documents", "show", attached.id),
    )

    assert "attached to" in listed.out
    assert attached.name in parent.out
    assert attached.id in parent.out
    assert re.search(rf"attached to\s+{document.id}", child.out)
    assert run("documents", "show", attached.id, "--json").json["parent_id"] == document.id


def test_documents_are_listed_shown_and_deleted(run: Run, document: DocumentOut) -> None:
    listed, shown = run("documents", "list"), run("documents", "show", document.id)

    for words in ("压机手册.pdf", "ready", document.id):
        assert words in listed.out
        assert words in shown.out
    for words in ("ocr", "93%", "low_contrast", "1.2%"):
        assert words in shown.out
    assert run("documents", "list", "--json").json["documents"][0]["id"] == document.id
    assert run("documents", "show", document.id, "--json").json["pages"][1]["source"] == "ocr"
    assert run("documents", "list", "--state", "failed").out.startswith("No documents")
    assert "Deleted" in run("documents", "delete", document.id).out
    assert run("documents", "delete", document.id).code == 4


def test_a_failed_document_says_why_and_what_to_do(
    run: Run, client: KbClient, make_file: Callable[..., Path]
) -> None:
    failed = add_document(client, make_file("broken.pdf", "y"))

    shown = run("documents", "show", failed.id)

    assert "damaged_file the file is cut off" in shown.out
    assert "Save it again." in shown.out
    assert run("documents", "delete", failed.id, "--json").json == {"deleted": [failed.id]}


def test_the_text_of_pages_is_printed_as_it_is(run: Run, document: DocumentOut) -> None:
    assert run("documents", "text", document.id, "--page", "2").out == PAGE_TEXT + "\n"
    assert run("documents", "text", document.id).out.count(PAGE_TEXT) == 2
    assert run("documents", "text", document.id, "--json").json["pages"][1]["page_number"] == 2
    assert run("documents", "text", document.id, "-p", "99").code == 4


# -- jobs


def test_jobs_are_listed_and_shown(run: Run, client: KbClient, make_file: Callable[..., Path]) -> None:
    assert run("jobs", "list").out == "No jobs.\n"
    failed = add_document(client, make_file("broken.pdf", "y"))

    shown = run("jobs", "show", failed.job_id)

    assert "broken.pdf" in run("jobs", "list").out
    for words in ("failed", "worker@press-3", "damaged_file: the file is cut off Save it again."):
        assert words in shown.out
    assert run("jobs", "list", "--state", "failed", "--json").json["jobs"][0]["id"] == failed.job_id
    assert run("jobs", "show", "none").code == 4


def test_a_running_job_shows_how_long_its_stage_takes(
    run: Run, client: KbClient, make_file: Callable[..., Path], state: State
) -> None:
    state.stuck_jobs, state.eta_s = True, 75.0
    client.create_collection("default")
    result = client.upload("default", make_file("slow.pdf", "slow"))
    assert result.document is not None
    job_id = result.document.job_id
    running = result.document.model_copy(update={"state": "parsing", "pages_done": 1, "page_count": 9})
    state.documents("default")[running.id] = running

    assert "1 min 15 s" in run("jobs", "list").out
    assert "1 min 15 s left" in run("jobs", "show", job_id).out
    assert run("jobs", "show", job_id, "--json").json["eta_s"] == 75


def test_jobs_are_cancelled_and_retried(run: Run, document: DocumentOut, state: State) -> None:
    state.stalled_reason = "no worker answers"

    refused = run("jobs", "cancel", document.job_id)
    retried = run("jobs", "retry", document.job_id)
    cancelled = run("jobs", "cancel", document.job_id)

    assert refused.code == 1
    assert "the job has ended" in refused.err
    assert "no worker answers" in retried.out
    assert "stopping" in cancelled.out
    assert run("jobs", "retry", document.job_id, "--json").json["state"] == "queued"
