from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from kb.errors import GeneratorUnavailableError
from kb.presets import get_sampling
from kb.schemas import AnswerOut, ChatCompletionOut, ErrorOut, SearchOut
from kb.types import Message, Sampling
from tests.unit.api.service import Service

ASK = "/v1/ask"
CHAT = "/v1/chat/completions"


def read_events(text: str) -> list[tuple[str, Any]]:
    """Return (event, data) of each frame of our own stream."""
    events = []
    for frame in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if fields:
            events.append((fields["event"], json.loads(fields["data"])))
    return events


def read_frames(text: str) -> list[Any]:
    """Return the JSON of each frame of an OpenAI stream; the last frame must end it."""
    frames = [frame for frame in text.split("\n\n") if frame and not frame.startswith(":")]
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    assert frames[-1] == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


def chat(client: TestClient, **fields: Any) -> Any:
    messages = [{"role": "user", "content": "E-0132?"}]
    return client.post(CHAT, json={"model": "default", "messages": messages} | fields)


# -- search
def test_a_search_returns_passages_with_scores(client: TestClient, service: Service) -> None:
    found = SearchOut.model_validate(client.post("/v1/search", json={"query": "油温", "top_k": 3}).json())

    assert service.retriever.asked == [("default", "油温", 3)]
    assert found.evidence == 0.75
    assert found.passages[0].document_name == "压机手册.pdf"
    assert (found.passages[0].page_start, found.passages[0].page_end) == (3, 3)
    assert found.passages[0].records == [{"代码": "E-0132"}]


def test_a_search_without_top_k_uses_the_default(client: TestClient, service: Service) -> None:
    client.post("/v1/search", json={"query": "x", "top_k": None})

    assert service.retriever.asked == [("default", "x", 8)]


@pytest.mark.parametrize("mode", ["dense", "lexical"])
def test_a_search_by_one_index_alone_judges_nothing(client: TestClient, service: Service, mode: str) -> None:
    body = {"query": "x", "top_k": 3, "mode": mode}

    found = SearchOut.model_validate(client.post("/v1/search", json=body).json())

    assert service.retriever.asked == [(f"{mode} default", "x", 3)]
    assert found.evidence is None
    assert [passage.document_name for passage in found.passages] == ["压机手册.pdf"]


# -- ask
def test_an_answer_has_citations_and_usage(client: TestClient, service: Service) -> None:
    body = {
        "question": "E-0132?",
        "history": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
        "top_k": 5,
        "max_tokens": 99,
    }

    answer = AnswerOut.model_validate(client.post(ASK, json=body).json())

    assert answer.answer == "停机并检查冷却器。[1]"
    assert answer.citations[0].quote == "停机并检查冷却器"
    assert answer.usage.total_tokens == 129
    assert not answer.refused
    (asked,) = service.answerer.asked
    assert asked.history == (Message("user", "hi"), Message("assistant", "ho"))
    assert asked.top_k == 5
    assert asked.sampling == Sampling(max_tokens=99)


def test_a_refusal_is_an_answer_with_a_reason(client: TestClient, service: Service) -> None:
    service.answerer.refuses = True

    answer = AnswerOut.model_validate(client.post(ASK, json={"question": "?"}).json())

    assert answer.refused
    assert answer.refusal is not None
    assert answer.refusal.reason == "below_threshold"
    assert answer.refusal.nearest[0].chunk_id == "d1-g1-00000"


@pytest.mark.parametrize("by_header", [False, True])
def test_a_stream_ends_with_the_answer_that_is_given_without_streaming(
    client: TestClient, by_header: bool
) -> None:
    whole = client.post(ASK, json={"question": "E-0132?"}).json()

    response = client.post(
        ASK,
        json={"question": "E-0132?", "stream": not by_header},
        headers={"Accept": "text/event-stream"} if by_header else {},
    )

    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-cache"
    assert "content-encoding" not in response.headers
    events = read_events(response.text)
    assert [kind for kind, _ in events] == ["delta", "delta", "delta", "answer"]
    assert "".join(data["text"] for kind, data in events if kind == "delta") == whole["answer"]
    assert events[-1][1] == whole


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"question": "too long"}, 400, "context_length_exceeded"),
        ({"question": " \n"}, 400, "invalid_request"),
        ({"question": "x", "collection": "nope"}, 404, "collection_not_found"),
        ({"question": ""}, 422, "invalid_request"),
    ],
)
def test_an_error_before_the_first_event_is_a_plain_status(
    client: TestClient, body: dict[str, Any], status: int, code: str, stream: bool
) -> None:
    response = client.post(ASK, json=body | {"stream": stream})

    assert response.status_code == status
    assert ErrorOut.model_validate(response.json()).error.code == code


def fail() -> None:
    raise GeneratorUnavailableError("the runtime died")


def crash() -> None:
    raise RuntimeError("canary question")


@pytest.mark.parametrize(("failure", "code"), [(fail, "runtime_unavailable"), (crash, "internal_error")])
def test_an_error_after_the_first_event_is_the_last_event(
    client: TestClient, service: Service, failure: Any, code: str
) -> None:
    service.answerer.between = failure

    events = read_events(client.post(ASK, json={"question": "x", "stream": True}).text)

    assert [kind for kind, _ in events] == ["delta", "error"]
    error = ErrorOut.model_validate(events[1][1]).error
    assert error.code == code
    assert error.request_id
    assert "canary" not in error.message


@pytest.mark.parametrize(("failure", "status"), [(fail, 503), (crash, 500)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_event_has_its_status(
    client: TestClient, service: Service, failure: Any, status: int, stream: bool
) -> None:
    service.answerer.before = failure

    response = client.post(ASK, json={"question": "x", "stream": stream})

    assert response.status_code == status
    assert "canary" not in response.text


def test_unusual_line_ends_do_not_break_a_frame(client: TestClient, service: Service) -> None:
    service.answerer.pieces = ["a\u2028b\x85c\r\n\n", "d\x0be\x1e"]

    text = client.post(ASK, json={"question": "x", "stream": True}).text

    events = read_events(text)
    assert (
        "".join(data["text"] for kind, data in events if kind == "delta") == "a\u2028b\x85c\r\n\nd\x0be\x1e"
    )


# -- chat completions
def test_a_completion_has_the_shape_of_openai(client: TestClient) -> None:
    completion = ChatCompletionOut.model_validate(chat(client).json())

    assert completion.id.startswith("chatcmpl-")
    assert completion.model == "default"
    assert completion.choices[0].message.content == "停机并检查冷却器。[1]"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.model_dump() == {
        "prompt_tokens": 120,
        "completion_tokens": 9,
        "total_tokens": 129,
    }
    assert completion.citations == completion.choices[0].message.citations
    assert completion.citations[0].page_number == 3
    assert completion.refusal_reason is None
    assert completion.mode == "generated"
    assert chat(client).json()["id"] != completion.id


def test_a_streamed_completion_has_role_text_finish_usage_and_done(client: TestClient) -> None:
    whole = chat(client).json()

    response = chat(client, stream=True, stream_options={"include_usage": True})

    assert "event:" not in response.text
    assert response.headers["x-accel-buffering"] == "no"
    chunks = read_frames(response.text)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]
    assert "".join(deltas) == whole["choices"][0]["message"]["content"]
    last, usage = chunks[-2:]
    assert last["choices"][0]["finish_reason"] == "stop"
    for name in ("citations", "refused", "refusal_reason", "mode", "notices"):
        assert last[name] == whole[name]
    assert last["choices"][0]["delta"]["citations"] == whole["citations"]
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_a_stream_without_usage_ends_with_the_finish_reason(client: TestClient, service: Service) -> None:
    service.answerer.finish_reason = "length"
    service.answerer.pieces = []

    chunks = read_frames(chat(client, stream=True).text)

    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, "length"]
    assert all("usage" not in chunk for chunk in chunks)


def test_a_refusal_keeps_a_standard_finish_reason(client: TestClient, service: Service) -> None:
    service.answerer.refuses = True
    service.answerer.finish_reason = "refused"

    completion = chat(client).json()

    assert completion["refused"]
    assert completion["refusal_reason"] == "below_threshold"
    assert completion["choices"][0]["finish_reason"] == "stop"


def test_system_messages_history_and_parts_reach_the_answerer(client: TestClient, service: Service) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Metric units."}]},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": "reply"},
        {"role": "user", "content": [{"type": "text", "text": "second"}, {"type": "text", "text": "line"}]},
        {"role": "assistant", "content": "prefill"},
    ]

    assert chat(client, messages=messages).status_code == 200

    (asked,) = service.answerer.asked
    assert asked.system == "Be brief.\n\nMetric units."
    assert asked.history == (Message("user", "first"), Message("assistant", "reply"))
    assert asked.question == "second\nline"
    assert asked.sampling is None


def test_sampling_is_passed_on_and_unknown_fields_are_ignored(client: TestClient, service: Service) -> None:
    response = chat(
        client,
        n=1,
        temperature=0.7,
        top_p=0.9,
        seed=3,
        stop="END",
        max_tokens=10,
        max_completion_tokens=20,
        frequency_penalty=1,
        user="wang",
        logit_bias={},
    )

    assert response.status_code == 200
    assert service.answerer.asked[0].sampling == Sampling(
        max_tokens=20, temperature=0.7, top_p=0.9, seed=3, stop=("END",)
    )


def test_sampling_without_a_length_uses_the_default_length(client: TestClient, service: Service) -> None:
    chat(client, stop=["A", "B"])

    assert service.answerer.asked[0].sampling == Sampling(max_tokens=256, stop=("A", "B"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "gpt-4"}, 404, "model_not_found"),
        ({"n": 2}, 400, "invalid_request"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": " "}]}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": "too long"}]}, 400, "context_length_exceeded"),
        ({"messages": []}, 422, "invalid_request"),
        ({"temperature": 3}, 422, "invalid_request"),
    ],
)
def test_a_wrong_completion_request_has_its_status(
    client: TestClient, fields: dict[str, Any], status: int, code: str, stream: bool
) -> None:
    response = chat(client, stream=stream, **fields)

    assert response.status_code == status
    error = ErrorOut.model_validate(response.json()).error
    assert error.code == code
    assert error.type == "invalid_request_error"


def test_a_runtime_that_dies_ends_a_completion_with_an_error_frame(
    client: TestClient, service: Service
) -> None:
    service.answerer.between = fail

    frames = read_frames(chat(client, stream=True).text)

    assert frames[-1]["error"]["code"] == "runtime_unavailable"


def test_collections_are_listed_as_models(client: TestClient, service: Service) -> None:
    models = client.get("/v1/models").json()

    assert models["object"] == "list"
    assert models["data"] == [
        {"id": "default", "object": "model", "created": int(service.clock().timestamp()), "owned_by": "kb"}
    ]


@pytest.mark.parametrize("name", ["qa", "fault", "creative", "code"])
def test_a_preset_is_passed_on(client: TestClient, service: Service, name: str) -> None:
    asked = client.post("/v1/ask", json={"question": "q", "preset": name, "think": True, "max_tokens": 9})

    assert asked.status_code == 200
    call = service.answerer.asked[0]
    assert (call.preset, call.think) == (name, True)
    assert call.sampling == get_sampling(call.preset, max_tokens=9)


def test_an_unknown_preset_is_refused(client: TestClient) -> None:
    assert client.post("/v1/ask", json={"question": "q", "preset": "poetry"}).status_code == 422


def test_a_model_name_may_end_in_a_preset(client: TestClient, service: Service) -> None:
    response = chat(
        client, model="default:fault", temperature=0.1, chat_template_kwargs={"enable_thinking": True}
    )

    assert response.status_code == 200
    assert response.json()["model"] == "default:fault"
    call = service.answerer.asked[0]
    assert (call.collection, call.preset, call.think) == ("default", "fault", True)
    assert call.sampling is not None
    assert (call.sampling.temperature, call.sampling.top_p) == (0.1, 0.85)
    assert chat(client, model="default:poetry").status_code == 404
