"""From a question to a cited answer or a refusal, over HTTP, with real processes and models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from tests.service import SAMPLES, Service, load_questions

QUESTIONS = load_questions()
ANSWERABLE = [q for q in QUESTIONS if q["answerable"]]
UNANSWERABLE = [q for q in QUESTIONS if not q["answerable"]]


def ask(service: Service, question: str, **options: Any) -> dict[str, Any]:
    """Return the answer to a question."""
    response = service.http.post("/v1/ask", json={"question": question, **options})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def read_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the server-sent events of a finished stream."""
    events = []
    for frame in re.split(r"\r?\n\r?\n", text):
        lines = [line for line in frame.splitlines() if line and not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            events.append((fields["event"], json.loads(fields["data"])))
    return events


@pytest.mark.parametrize("question", ANSWERABLE, ids=[q["id"] for q in ANSWERABLE])
def test_the_evidence_page_is_among_the_first_five(service: Service, question: dict[str, Any]) -> None:
    response = service.http.post("/v1/search", json={"query": question["text"], "top_k": 5})

    found = {
        (passage["document_name"], page)
        for passage in response.json()["passages"]
        for page in range(passage["page_start"], passage["page_end"] + 1)
    }

    wanted = {(evidence["document"], evidence["page"]) for evidence in question["evidence"]}
    assert wanted <= found if question["kind"] == "multi" else wanted & found


@pytest.mark.parametrize("question", UNANSWERABLE, ids=[q["id"] for q in UNANSWERABLE])
def test_what_the_documents_do_not_answer_is_refused(service: Service, question: dict[str, Any]) -> None:
    answer = ask(service, question["text"])

    assert answer["refused"]
    assert answer["mode"] == "refused"
    assert answer["refusal"]["reason"] in ("code_unknown", "below_threshold", "not_stated")
    assert answer["citations"] == []


def test_a_citation_is_an_exact_slice_of_the_stored_page(service: Service) -> None:
    question = next(q for q in ANSWERABLE if q["kind"] == "code")

    answer = ask(service, question["text"])

    assert not answer["refused"]
    assert answer["citations"]
    markers = {int(number) for number in re.findall(r"\[(\d+)\]", answer["answer"])}
    assert markers == {citation["number"] for citation in answer["citations"]}
    for citation in answer["citations"]:
        page = service.http.get(
            f"/v1/collections/default/documents/{citation['document_id']}/pages/{citation['page_number']}"
        ).json()
        assert page["text"][citation["char_start"] : citation["char_end"]] == citation["quote"]


def test_the_streamed_pieces_are_the_whole_answer(service: Service) -> None:
    question = next(q for q in ANSWERABLE if q["kind"] == "fact")

    response = service.http.post("/v1/ask", json={"question": question["text"], "stream": True})

    events = read_events(response.text)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [name for name, _ in events[-1:]] == ["answer"]
    deltas = "".join(data["text"] for name, data in events if name == "delta")
    assert deltas == events[-1][1]["answer"]


def test_the_openai_client_works_unchanged(service: Service) -> None:
    question = next(q for q in ANSWERABLE if q["kind"] == "code")
    client = OpenAI(base_url=f"{service.url}/v1", api_key="unused")

    assert "default" in [model.id for model in client.models.list()]
    whole = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": question["text"]}]
    )
    pieces = list(
        client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": question["text"]}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    text = "".join(chunk.choices[0].delta.content or "" for chunk in pieces if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage is not None
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.prompt_tokens == whole.usage.prompt_tokens > 100
    with pytest.raises(NotFoundError):
        client.chat.completions.create(model="no-such", messages=[{"role": "user", "content": "x"}])
    client.close()


def test_a_question_that_is_too_long_is_a_clear_error(service: Service) -> None:
    response = service.http.post("/v1/ask", json={"question": "液压站压力波动的原因是什么？" * 1500})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_kb_eval_finds_every_evidence_page_and_refuses_the_rest(service: Service, tmp_path: Path) -> None:
    target = service.data_dir / "eval.json"
    head, *blocks = (SAMPLES / "questions.toml").read_text("utf-8").split("[[question]]")
    some = tmp_path / "some.toml"
    # every third: the model needs seconds for each, and all of them are asked without it above
    some.write_text(head + "".join(f"[[question]]{block}" for block in blocks[::3]), "utf-8")

    result = service.run_kb("eval", str(some), "--json", str(target), limit_s=900)

    assert result.returncode == 0, result.stdout + result.stderr
    metrics = json.loads(target.read_text("utf-8"))
    print(result.stdout)
    assert metrics["retrieval"]["hit@5"] == 1.0
    assert metrics["refusal"]["recall"] == 1.0
    assert metrics["citations"]["valid"] == 1.0
