from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from kb.adapters.circuit_breaker import CircuitBreaker
from kb.adapters.openai_generator import OpenAiGenerator
from kb.errors import (
    CallerError,
    ConfigurationError,
    GeneratorUnavailableError,
    KbError,
    QuestionTooLongError,
)
from kb.types import GenerationDelta, GenerationEnd, GenerationEvent, GenerationRequest, Message, Sampling
from tests.runtime_server import ANSWER, Runtime, delta, serve_runtime


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with serve_runtime() as running:
        yield running


def connect(
    runtime: Runtime,
    *,
    model: str | None = None,
    api_key: str | None = None,
    timeout_s: float = 20,
    deadline_s: float = 60,
    breaker: CircuitBreaker | None = None,
) -> OpenAiGenerator:
    return OpenAiGenerator(
        base_url=runtime.url,
        model=model,
        api_key=api_key,
        timeout_s=timeout_s,
        deadline_s=deadline_s,
        breaker=breaker,
        pauses_s=(0, 0),
    )


def ask(
    generator: OpenAiGenerator, sampling: Sampling | None = None, *, thinking: bool = False, adapter: str = ""
) -> list[GenerationEvent]:
    request = GenerationRequest(
        (Message("user", "E-0471?"),),
        "E-0471?",
        (),
        "en",
        sampling or Sampling(),
        think=thinking,
        adapter=adapter,
    )
    return list(generator.stream(request))


def read_text(events: list[GenerationEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, GenerationDelta))


def read_end(events: list[GenerationEvent]) -> GenerationEnd:
    end = events[-1]
    assert isinstance(end, GenerationEnd)
    return end


def test_text_and_token_counts_are_those_of_the_runtime(runtime: Runtime) -> None:
    events = ask(connect(runtime))

    assert events == [
        GenerationDelta("清洗"),
        GenerationDelta("冷却器 [1]"),
        GenerationDelta("。"),
        GenerationEnd("stop", prompt_tokens=17, completion_tokens=3),
    ]


def test_the_request_carries_the_sampling_and_turns_thinking_off(runtime: Runtime) -> None:
    sampling = Sampling(max_tokens=9, temperature=0.5, top_p=0.8, stop=("\n",), seed=4)

    ask(connect(runtime, api_key="secret-key"), sampling)

    assert runtime.bodies == [
        {
            "model": "qwen-test",
            "messages": [{"role": "user", "content": "E-0471?"}],
            "max_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.8,
            "repetition_penalty": 1.05,
            "stop": ["\n"],
            "seed": 4,
            "stream": True,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]
    assert runtime.headers[0]["authorization"] == "Bearer secret-key"


def test_a_configured_model_is_sent_without_asking_for_the_list(runtime: Runtime) -> None:
    generator = connect(runtime, model="mine")

    ask(generator)

    assert runtime.bodies[0]["model"] == generator.name == "mine"
    assert runtime.model_lookups == 0
    assert "authorization" not in runtime.headers[0]


def test_the_limit_is_asked_once_and_again_after_a_failure(runtime: Runtime) -> None:
    generator = connect(runtime)
    assert generator.name.endswith("/v1")
    assert generator.get_context_limit() == generator.get_context_limit() == 8192
    assert generator.name == "qwen-test"
    assert runtime.model_lookups == 1

    runtime.models = {"data": [{"id": "other", "max_model_len": 4000}]}
    runtime.events = [delta("x"), None]
    with pytest.raises(GeneratorUnavailableError):
        ask(generator)

    assert generator.get_context_limit() == 4000
    assert runtime.model_lookups == 2


@pytest.mark.parametrize(
    ("models", "limit"),
    [
        ({"data": [{"id": "a"}]}, 4096),
        ({"data": [{"id": "a", "meta": {"n_ctx": 2048}}]}, 2048),
        ({"data": [{"id": "a", "max_model_len": 1}, {"id": "mine", "max_model_len": 777}]}, 777),
    ],
)
def test_the_limit_is_that_of_the_model_in_use(runtime: Runtime, models: object, limit: int) -> None:
    runtime.models = models

    assert connect(runtime, model="mine").get_context_limit() == limit


@pytest.mark.parametrize(
    ("models", "error"),
    [
        ({"data": []}, GeneratorUnavailableError),
        ({"data": [{"name": "no id"}]}, ConfigurationError),
        (["no object"], ConfigurationError),
        ({}, ConfigurationError),
    ],
)
def test_a_strange_model_list_is_an_error(runtime: Runtime, models: object, error: type[KbError]) -> None:
    runtime.models = models

    with pytest.raises(error):
        connect(runtime).ping()


def test_a_ping_asks_the_runtime_each_time(runtime: Runtime) -> None:
    generator = connect(runtime)
    assert generator.ping() == "qwen-test, 8192 tokens"

    runtime.models_status = 503

    with pytest.raises(GeneratorUnavailableError):
        generator.ping()


FLAT_TOO_LONG = {
    "object": "error",
    "message": "The input (9009 tokens) is longer than the model's context length (8192 tokens).",
    "type": "BadRequestError",
    "code": 400,
}
NESTED_TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 8192 tokens, your request has 9009 tokens.",
        "code": "context_length_exceeded",
    }
}
EXCEEDS = {
    "object": "error",
    "message": "Requested token count exceeds the limit of 8192: 9009.",
    "code": 400,
}


@pytest.mark.parametrize("body", [FLAT_TOO_LONG, NESTED_TOO_LONG, EXCEEDS])
def test_a_prompt_too_long_is_the_callers_error_with_its_numbers(
    runtime: Runtime, body: dict[str, object]
) -> None:
    runtime.status, runtime.error_body = 400, json.dumps(body)

    with pytest.raises(QuestionTooLongError) as caught:
        ask(connect(runtime))

    assert (caught.value.tokens, caught.value.limit_tokens) == (9009, 8192)


def test_a_prompt_too_long_is_also_seen_inside_the_stream(runtime: Runtime) -> None:
    runtime.events = [FLAT_TOO_LONG]

    with pytest.raises(QuestionTooLongError):
        ask(connect(runtime))


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, '{"object": "error", "message": "Empty messages"}', CallerError),
        (422, "not json", CallerError),
        (400, '["list"]', CallerError),
        (400, '{"error": "plain text"}', CallerError),
        (401, '{"error": {"message": "bad key"}}', ConfigurationError),
        (404, "no such model", ConfigurationError),
        (429, "busy", GeneratorUnavailableError),
        (500, '{"error": {"message": "CUDA out of memory"}}', GeneratorUnavailableError),
        (503, "", GeneratorUnavailableError),
    ],
)
def test_each_refusal_is_the_error_of_who_has_to_act(
    runtime: Runtime, status: int, body: str, error: type[KbError]
) -> None:
    runtime.status, runtime.error_body = status, body

    with pytest.raises(error) as caught:
        ask(connect(runtime))

    assert type(caught.value) is error


@pytest.mark.parametrize(
    "events",
    [
        [],
        [delta("x"), None],
        [delta("x")],
        [delta("x", finish="abort"), "[DONE]"],
        ["{damaged"],
        ["[1, 2]"],
        [{"error": {"message": "worker died", "code": 500}}],
        [{"error": {"message": "worker died"}}],
    ],
    ids=["empty", "cut off", "no end", "aborted", "no JSON", "no object", "error", "error without code"],
)
def test_a_broken_stream_is_a_failed_runtime(runtime: Runtime, events: list[object]) -> None:
    runtime.events = events

    with pytest.raises(GeneratorUnavailableError):
        ask(connect(runtime))


def test_without_usage_the_pieces_are_counted(runtime: Runtime) -> None:
    runtime.events = [delta("a"), delta("b", finish="length"), "[DONE]"]

    assert ask(connect(runtime))[-1] == GenerationEnd("length", prompt_tokens=0, completion_tokens=2)


def test_a_slow_first_token_within_the_limit_is_waited_for(runtime: Runtime) -> None:
    runtime.first_event.clear()
    generator = connect(runtime)
    found: list[GenerationEvent] = []
    thread = threading.Thread(target=lambda: found.extend(ask(generator)))
    thread.start()

    runtime.first_event.set()
    thread.join()

    assert len(found) == 4


def test_a_silence_beyond_the_limit_is_a_failed_runtime(runtime: Runtime) -> None:
    runtime.first_event.clear()

    with pytest.raises(GeneratorUnavailableError, match="ReadTimeout"):
        ask(connect(runtime, model="m", timeout_s=0.2))


def test_a_client_that_leaves_ends_the_request_at_the_runtime(runtime: Runtime) -> None:
    runtime.events = [delta("x"), ...]
    request = GenerationRequest((Message("user", "?"),), "?", (), "en")
    stream = connect(runtime).stream(request)
    next(stream)

    stream.close()  # type: ignore[attr-defined]  # a generator function

    assert runtime.client_left.wait(30)


def test_a_runtime_that_is_not_there_is_unavailable(runtime: Runtime) -> None:
    generator = OpenAiGenerator(base_url="http://127.0.0.1:9/v1/", model=None, api_key=None, timeout_s=5)

    with pytest.raises(GeneratorUnavailableError, match="ConnectError"):
        generator.get_context_limit()


def test_proxies_of_the_environment_are_not_used(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    assert len(ask(connect(runtime))) == len(ANSWER) - 2


def test_the_limit_is_never_more_than_the_cache_of_the_runtime(runtime: Runtime) -> None:
    runtime.info = {"max_total_num_tokens": 5000}

    assert connect(runtime).get_context_limit() == 5000


@pytest.mark.parametrize("info", [{"max_total_num_tokens": 90_000}, {"max_total_num_tokens": "x"}, [], {}])
def test_a_larger_or_strange_cache_changes_nothing(runtime: Runtime, info: object) -> None:
    runtime.info = info

    assert connect(runtime).get_context_limit() == 8192


def test_a_busy_runtime_is_asked_again(runtime: Runtime) -> None:
    runtime.refusals = [503, 429]

    assert read_text(ask(connect(runtime))) == "清洗冷却器 [1]。"
    assert len(runtime.bodies) == 3


def test_a_full_queue_told_inside_the_stream_is_tried_again_too(runtime: Runtime) -> None:
    runtime.events = [{"error": {"message": "The request queue is full.", "code": 503}}]

    with pytest.raises(GeneratorUnavailableError, match="queue is full"):
        ask(connect(runtime))

    assert len(runtime.bodies) == 3


def test_what_was_streamed_is_never_asked_for_again(runtime: Runtime) -> None:
    runtime.events = [delta("x"), {"error": {"message": "gone", "code": 503}}]

    with pytest.raises(GeneratorUnavailableError):
        ask(connect(runtime))

    assert len(runtime.bodies) == 1


def test_after_several_failures_calls_fail_at_once_until_a_trial_succeeds(runtime: Runtime) -> None:
    now = 0.0
    generator = connect(runtime, breaker=CircuitBreaker(failures=2, pause_s=5, clock=lambda: now))
    runtime.status = 500
    for _ in range(3):
        with pytest.raises(GeneratorUnavailableError):
            ask(generator)
    assert len(runtime.bodies) == 2

    now, runtime.status = 6.0, 200

    assert len(ask(generator)) == len(ask(generator)) == 4


def test_a_refused_request_is_no_failure_of_the_runtime(runtime: Runtime) -> None:
    generator = connect(runtime, breaker=CircuitBreaker(failures=1))
    runtime.status, runtime.error_body = 400, json.dumps(FLAT_TOO_LONG)
    for _ in range(2):
        with pytest.raises(QuestionTooLongError):
            ask(generator)


def test_reasoning_is_parted_from_the_answer(runtime: Runtime) -> None:
    runtime.events = [
        delta("<thi"),
        delta("nk>\nFan or"),
        delta(" cooler?</think"),
        delta(">\n\nClean it.", finish="stop"),
    ]

    events = ask(connect(runtime), thinking=True)

    assert read_text(events) == "Clean it."
    assert read_end(events).reasoning == "Fan or cooler?"
    assert runtime.bodies[0]["chat_template_kwargs"] == {"enable_thinking": True}


def test_reasoning_that_the_runtime_has_parted_itself_stays_apart(runtime: Runtime) -> None:
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}, "finish_reason": None}]}
    runtime.events = [thought, delta("Clean it.", finish="stop")]

    events = ask(connect(runtime))

    assert (read_text(events), read_end(events).reasoning) == ("Clean it.", "Hm.")


def test_an_adapter_is_named_behind_the_model(runtime: Runtime) -> None:
    ask(connect(runtime), adapter="press")

    assert runtime.bodies[0]["model"] == "qwen-test:press"


def test_a_loop_is_cut_and_marked(runtime: Runtime) -> None:
    runtime.events = [delta("Clean it.\n"), *[delta("Check the fan again.\n")] * 400, ...]

    events = ask(connect(runtime))

    end = read_end(events)
    assert (end.finish_reason, end.looped) == ("length", True)
    assert len(read_text(events)) < 1000
    assert runtime.client_left.wait(30)


def test_a_stream_that_only_keeps_alive_ends_at_the_deadline(runtime: Runtime) -> None:
    runtime.events = [delta("one ")] * 50 + [...]

    with pytest.raises(GeneratorUnavailableError, match="in time"):
        ask(connect(runtime, deadline_s=0.0))


def test_cached_tokens_are_passed_on(runtime: Runtime) -> None:
    usage = {"prompt_tokens": 17, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 12}}
    runtime.events = [delta("a", finish="stop"), {"choices": [], "usage": usage}, "[DONE]"]

    assert read_end(ask(connect(runtime))).cached_tokens == 12
