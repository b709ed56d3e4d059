"""A chat model behind an OpenAI-style HTTP runtime such as SGLang or vLLM."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from kb.adapters.circuit_breaker import CircuitBreaker
from kb.adapters.loop_detector import LoopDetector
from kb.adapters.thinking_filter import ThinkingFilter
from kb.errors import (
    CallerError,
    ConfigurationError,
    GeneratorUnavailableError,
    KbError,
    QuestionTooLongError,
)
from kb.types import GenerationDelta, GenerationEnd, GenerationEvent, GenerationRequest

_CONNECT_TIMEOUT_S = 5.0
_LOOKUP_TIMEOUT_S = 10.0
_DEFAULT_CONTEXT_TOKENS = 4096
_MAX_QUOTED_CHARS = 300
_PAUSES_S = (0.2, 0.8)
"""Waits before the second and third try of a request of which nothing was streamed yet."""
_TOO_LONG = re.compile(
    r"context length|context window|context size|context_length_exceeded|requested token count exceeds"
    r"|input is too long|prompt is too long|longer than the (?:model|maximum)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _RuntimeModel:
    name: str
    context_tokens: int


class _BusyError(GeneratorUnavailableError):
    """The runtime refused the request for now, or went away before it began to answer."""


class OpenAiGenerator:
    """Streams from `{base_url}/chat/completions`; `/v1` is added to a URL without a path.

    The model's name and limit come from `{base_url}/models` and are kept until a call fails; the limit is
    never more than the KV cache that SGLang reports. A request of which nothing was streamed is tried
    again; after several failures in a row calls fail at once for some seconds. Proxies of the
    environment are not used: the runtime is on the plant's own network.

    `timeout_s` is the longest silence, `deadline_s` the longest answer.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model: str | None,
        api_key: str | None,
        timeout_s: float,
        deadline_s: float = 600.0,
        breaker: CircuitBreaker | None = None,
        pauses_s: Sequence[float] = _PAUSES_S,
    ) -> None:
        url = httpx.URL(base_url)
        self._base_url = f"{str(url).rstrip('/')}/v1" if url.path in ("", "/") else str(url).rstrip("/")
        self._model = model
        self._lookup_timeout_s = min(timeout_s, _LOOKUP_TIMEOUT_S)
        self._deadline_s = deadline_s
        self._breaker = breaker or CircuitBreaker()
        self._pauses_s = tuple(pauses_s)
        self._found: _RuntimeModel | None = None
        self._lock = threading.Lock()
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            verify=ssl.create_default_context(),  # the system's certificates, a plant's own included
            trust_env=False,
        )

    @property
    def name(self) -> str:
        """See `kb.ports.Generator`; the runtime's address as long as it never answered."""
        found = self._found
        return self._model or (found.name if found else self._base_url)

    @property
    def mode(self) -> str:
        """See `kb.ports.Generator`."""
        return "generated"

    def get_context_limit(self) -> int:
        """See `kb.ports.Generator`; 4096 if the runtime does not say."""
        return self._get_model().context_tokens

    def ping(self) -> str:
        """See `kb.ports.Generator`."""
        found = self._look_up()
        return f"{found.name}, {found.context_tokens} tokens"

    def close(self) -> None:
        """Close the connections; nothing may be asked afterwards."""
        self._client.close()

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """See `kb.ports.Generator`.

        Raises `QuestionTooLongError` or another `CallerError` when the runtime refuses the prompt,
        and `ConfigurationError` when it refuses the key, the address or the model.
        """
        wait_s = self._breaker.try_enter()
        if wait_s:
            raise GeneratorUnavailableError(
                f"the runtime at {self._base_url!r} failed several times; it is tried again in {wait_s:.0f} s"
            )
        try:
            yield from self._stream_with_retries(request)
        except GeneratorUnavailableError:
            self._breaker.note(ok=False)
            raise
        except KbError:
            self._breaker.note(ok=True)  # it answered, if only with a refusal
            raise
        self._breaker.note(ok=True)

    def _stream_with_retries(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        deadline = time.monotonic() + self._deadline_s
        for pause_s in (*self._pauses_s, None):
            reading = _Reading(ThinkingFilter(begins_inside=request.think))
            try:
                yield from self._stream_once(request, reading, deadline=deadline)
            except _BusyError as error:
                if pause_s is None or reading.has_events or time.monotonic() + pause_s > deadline:
                    raise GeneratorUnavailableError(error.message) from error
                time.sleep(pause_s)
            else:
                return

    def _stream_once(
        self, request: GenerationRequest, reading: _Reading, *, deadline: float
    ) -> Iterator[GenerationEvent]:
        with self._translate_failures(reading):
            body = self._build_body(request)
            with self._client.stream("POST", f"{self._base_url}/chat/completions", json=body) as response:
                if response.is_error:
                    response.read()
                    raise _translate_status(response.status_code, response.text)
                yield from _iter_events(response, reading, deadline=deadline)

    def _build_body(self, request: GenerationRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._get_served_name(request),
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "repetition_penalty": sampling.repetition_penalty,
            "stream": True,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": request.think},
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        return body

    def _get_served_name(self, request: GenerationRequest) -> str:
        """Return the model's name, followed by that of the adapter as SGLang wants it."""
        name = self._model or self._get_model().name
        return f"{name}:{request.adapter}" if request.adapter else name

    def _get_model(self) -> _RuntimeModel:
        with self._lock:
            return self._found or self._look_up()

    def _look_up(self) -> _RuntimeModel:
        with self._translate_failures():
            response = self._client.get(f"{self._base_url}/models", timeout=self._lookup_timeout_s)
            if response.is_error:
                raise _translate_status(response.status_code, response.text)
            try:
                models = [entry for entry in response.json()["data"] if isinstance(entry["id"], str)]
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigurationError(
                    f"{self._base_url!r} does not list models as an OpenAI-style runtime does",
                    next_step="Check KB_GENERATOR_URL.",
                ) from error
        if not models:
            raise GeneratorUnavailableError(f"the runtime at {self._base_url!r} serves no model yet")
        entry = next((entry for entry in models if entry["id"] == self._model), models[0])
        limit = (
            entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx") or _DEFAULT_CONTEXT_TOKENS
        )
        limit = min(int(limit), self._look_up_pool() or int(limit))
        self._found = _RuntimeModel(self._model or entry["id"], limit)
        return self._found

    def _look_up_pool(self) -> int | None:
        """Return how many tokens SGLang's KV cache holds; None where the runtime doesn't say."""
        address = f"{self._base_url.removesuffix('/v1')}/server_info"
        try:
            response = self._client.get(address, timeout=self._lookup_timeout_s)
            tokens = response.json()["max_total_num_tokens"] if response.status_code == 200 else None
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    @contextlib.contextmanager
    def _translate_failures(self, reading: _Reading | None = None) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.StreamError) as error:
            self._found = None
            message = f"the runtime at {self._base_url!r} does not answer: {type(error).__name__}"
            if reading is not None and not reading.has_events and not isinstance(error, httpx.ReadTimeout):
                raise _BusyError(message) from error
            raise GeneratorUnavailableError(message) from error
        except GeneratorUnavailableError:
            self._found = None
            raise


@dataclass(slots=True)
class _Reading:
    """What was read of one stream so far."""

    thinking: ThinkingFilter
    loops: LoopDetector = field(default_factory=LoopDetector)
    has_events: bool = False
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    deltas: int = 0
    looped: bool = False
    reasoning: str = ""

    def take(self, chunk: dict[str, Any]) -> str:
        """Take one chunk; return the text of the answer that it adds."""
        self.has_events = True
        self.usage = chunk.get("usage") or self.usage
        shown = ""
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self.reasoning += delta.get("reasoning_content") or ""
            if text := delta.get("content"):
                self.deltas += 1
                shown += self.thinking.feed(text)
                self.looped = self.looped or self.loops.feed(text)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        return shown

    def build_end(self) -> GenerationEnd:
        """Return the last event."""
        details = self.usage.get("prompt_tokens_details") or {}
        return GenerationEnd(
            "length" if self.looped or self.finish_reason == "length" else "stop",
            prompt_tokens=int(self.usage.get("prompt_tokens") or 0),
            completion_tokens=int(self.usage.get("completion_tokens") or self.deltas),
            looped=self.looped,
            reasoning=(self.reasoning + self.thinking.reasoning).strip(),
            cached_tokens=int(details.get("cached_tokens") or 0),
        )


def _iter_events(
    response: httpx.Response, reading: _Reading, *, deadline: float
) -> Iterator[GenerationEvent]:
    for chunk in _iter_chunks(response, deadline=deadline):
        if text := reading.take(chunk):
            yield GenerationDelta(text)
        if reading.looped:
            break  # leaving closes the connection, which stops the runtime
    if text := reading.thinking.flush(cut=reading.looped or reading.finish_reason != "stop"):
        yield GenerationDelta(text)
    if not reading.looped and reading.finish_reason in ("", "abort"):
        raise GeneratorUnavailableError("the runtime broke off its answer")
    yield reading.build_end()


def _iter_chunks(response: httpx.Response, *, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream of server-sent events, up to its end mark."""
    for line in response.iter_lines():
        if time.monotonic() > deadline:
            raise GeneratorUnavailableError("the runtime did not end its answer in time")
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        try:
            chunk = json.loads(data)
        except ValueError as error:
            raise GeneratorUnavailableError("the runtime sent a damaged event") from error
        if not isinstance(chunk, dict):
            raise GeneratorUnavailableError("the runtime sent a damaged event")
        if chunk.get("object") == "error" or "error" in chunk:
            code = (chunk.get("error") or chunk).get("code")
            raise _translate_status(code if isinstance(code, int) else 500, data)
        yield chunk


def _translate_status(status: int, text: str) -> KbError:
    """Return the error that a runtime's refusal stands for."""
    message = _read_message(text)
    if status < 500 and _TOO_LONG.search(message):
        numbers = [int(number) for number in re.findall(r"\d+", message)]
        return QuestionTooLongError(tokens=max(numbers, default=0), limit_tokens=min(numbers, default=0))
    if status in (401, 403, 404):
        return ConfigurationError(
            f"the runtime refused the call with status {status}: {message}",
            next_step="Check KB_GENERATOR_URL, KB_GENERATOR_MODEL and KB_GENERATOR_API_KEY.",
        )
    if status in (408, 425, 429, 502, 503, 504):
        return _BusyError(f"the runtime has no room now, status {status}: {message}")
    if status >= 500:
        return GeneratorUnavailableError(f"the runtime failed with status {status}: {message}")
    return CallerError(f"the runtime refused the request: {message}")


def _read_message(text: str) -> str:
    """Return the message of a flat or nested error, or the beginning of the text."""
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if isinstance(content, dict):
        nested = content.get("error")
        found = nested.get("message") if isinstance(nested, dict) else nested or content.get("message")
        if isinstance(found, str):
            text = found
    return text[:_MAX_QUOTED_CHARS]
