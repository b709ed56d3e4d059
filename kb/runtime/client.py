"""Asks a running SGLang about itself, beside the answers it gives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from kb.errors import CallerError, GeneratorUnavailableError
from kb.types import Message

_SAMPLE = re.compile(r"^(sglang:[\w:]+)(?:\{[^}]*\})?\s+([\d.eE+-]+)$", re.MULTILINE)


class RuntimeClient:
    """Calls the runtime's own routes; raises `GeneratorUnavailableError` when it does not answer."""

    def __init__(self, url: str, *, timeout_s: float = 10.0, api_key: str | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._http = httpx.Client(
            base_url=self.url,
            timeout=timeout_s,
            trust_env=False,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def is_healthy(self) -> bool:
        """Return whether the runtime serves."""
        try:
            return self._http.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    def get_info(self) -> dict[str, Any]:
        """Return its arguments and what it found out, such as `max_total_num_tokens`."""
        response = self._call("GET", "/server_info")
        if response.status_code == 404:
            response = self._call("GET", "/get_server_info")
        return self._read(response)

    def list_models(self) -> list[dict[str, Any]]:
        """Return its model, then the adapters that are loaded; those have a `parent`."""
        return list(self._read(self._call("GET", "/v1/models")).get("data", []))

    def count_prompt(self, messages: Sequence[Message], *, options: Mapping[str, object]) -> int:
        """Return how many tokens the runtime makes of the messages, generation prompt included."""
        body = {
            "model": "default",
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "add_generation_prompt": True,
            "chat_template_kwargs": dict(options),
        }
        return int(self._read(self._call("POST", "/tokenize", json=body))["count"])

    def tokenize(self, text: str) -> list[int]:
        """Return the runtime's token ids of a plain text."""
        body = {"model": "default", "prompt": text, "add_special_tokens": False}
        return [int(token) for token in self._read(self._call("POST", "/tokenize", json=body))["tokens"]]

    def read_gauges(self) -> dict[str, float]:
        """Return its metrics by name, summed over labels; an empty one without `--enable-metrics`."""
        response = self._call("GET", "/metrics")
        found: dict[str, float] = {}
        if response.status_code == 200:
            for name, value in _SAMPLE.findall(response.text):
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def load_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter; raises `CallerError` with the runtime's reason."""
        self._change("/load_lora_adapter", {"lora_name": name, "lora_path": path})

    def unload_adapter(self, name: str) -> None:
        """Unload a LoRA adapter; raises `CallerError` with the runtime's reason."""
        self._change("/unload_lora_adapter", {"lora_name": name})

    def flush_cache(self) -> None:
        """Forget all cached prefixes; does nothing while requests run."""
        self._call("POST", "/flush_cache")

    def _change(self, path: str, body: Mapping[str, object]) -> None:
        response = self._call("POST", path, json=body)
        content = (
            response.json() if response.headers.get("content-type", "").startswith("application/json") else {}
        )
        if response.is_error or not content.get("success", True):
            reason = content.get("error_message") or content.get("message") or response.text[:300]
            raise CallerError(
                f"the runtime refused the adapter: {reason}",
                next_step="Start it with `kb model serve --lora …`, which allows adapters, and check the name.",
            )

    def _call(self, method: str, path: str, *, json: Mapping[str, object] | None = None) -> httpx.Response:
        try:
            return self._http.request(method, path, json=json)
        except httpx.HTTPError as error:
            raise GeneratorUnavailableError(
                f"the runtime at {self.url!r} does not answer: {type(error).__name__}"
            ) from error

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        if response.is_error:
            raise GeneratorUnavailableError(
                f"the runtime at {self.url!r} answered with status {response.status_code}: {response.text[:200]}"
            )
        content = response.json()
        return content if isinstance(content, dict) else {}
