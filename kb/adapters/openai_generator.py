"""A chat model behind an OpenAI-style HTTP runtime such as SGLang or vLLM."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

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
_TOO_LONG = re.compile(
    r"context length|context window|context size|context_length_exceeded|requested token count exceeds"
    r"|input is too long|prompt is too long|longer than the (?:model|maximum)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _RuntimeModel:
    name: str
    context_tokens: int


class OpenAiGenerator:
    """Streams from `{base_url}/chat/completions`; `/v1` is added to a URL without a path.

    The model's name and limit come from `{base_url}/models` and are kept until a call fails. Proxies
    of the environment are not used: the runtime is on the plant's own network.
    """

    def __init__(self, *, base_url: str, model: str | None, api_key: str | None, timeout_s: float) -> None:
        url = httpx.URL(base_url)
        self._base_url = f"{str(url).rstrip('/')}/v1" if url.path in ("", "/") else str(url).rstrip("/")
        self._model = model
        self._lookup_timeout_s = min(timeout_s, _LOOKUP_TIMEOUT_S)
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
        body = self._build_body(request)
        with (
            self._translate_failures(),
            self._client.stream("POST", f"{self._base_url}/chat/completions", json=body) as response,
        ):
            if response.is_error:
                response.read()
                raise _translate_status(response.status_code, response.text)
            yield from self._iter_events(response)

    def _build_body(self, request: GenerationRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._model or self._get_model().name,
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

    def _iter_events(self, response: httpx.Response) -> Iterator[GenerationEvent]:
        finish_reason = ""
        usage: dict[str, Any] = {}
        deltas = 0
        for chunk in _iter_chunks(response):
            usage = chunk.get("usage") or usage
            for choice in chunk.get("choices") or ():
                if text := (choice.get("delta") or {}).get("content"):
                    deltas += 1
                    yield GenerationDelta(text)
                finish_reason = choice.get("finish_reason") or finish_reason
        if finish_reason in ("", "abort"):
            raise GeneratorUnavailableError("the runtime broke off its answer")
        yield GenerationEnd(
            "length" if finish_reason == "length" else "stop",
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or deltas),
        )

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
        self._found = _RuntimeModel(self._model or entry["id"], int(limit))
        return self._found

    @contextlib.contextmanager
    def _translate_failures(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.StreamError) as error:
            self._found = None
            raise GeneratorUnavailableError(
                f"the runtime at {self._base_url!r} does not answer: {type(error).__name__}"
            ) from error
        except GeneratorUnavailableError:
            self._found = None
            raise


def _iter_chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream of server-sent events, up to its end mark."""
    for line in response.iter_lines():
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
    if status in (408, 425, 429) or status >= 500:
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
