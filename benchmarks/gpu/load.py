"""A closed loop of streaming chat completions: so many clients, each with its next request at once."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

_TIMEOUT_S = 300.0


@dataclass(slots=True)
class Sample:
    """One request: when it was sent, when text first came, when it ended (seconds since the epoch)."""

    key: str
    sent_at: float
    first_at: float | None = None
    ended_at: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""
    error: str = ""
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def ttft_ms(self) -> float | None:
        """Time to the first text, in ms."""
        return None if self.first_at is None else (self.first_at - self.sent_at) * 1000


@dataclass(frozen=True, slots=True)
class Load:
    """All requests of one level."""

    clients: int
    wall_s: float
    samples: list[Sample]

    @property
    def failed(self) -> list[Sample]:
        """Requests that ended with an error."""
        return [sample for sample in self.samples if sample.error]

    @property
    def completion_tokens(self) -> int:
        """Tokens that the model wrote."""
        return sum(sample.completion_tokens for sample in self.samples)

    @property
    def tokens_per_s(self) -> float:
        """Written tokens over the time of the whole level."""
        return self.completion_tokens / self.wall_s if self.wall_s else 0.0


def run_load(
    url: str,
    bodies: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    clients: int,
    headers: Mapping[str, str] | None = None,
) -> Load:
    """Send all bodies to `{url}/chat/completions` with so many clients; each body has a key."""
    return asyncio.run(_run(url, bodies, clients=clients, headers=dict(headers or {})))


def summarise(values: Sequence[float]) -> dict[str, float]:
    """Return median and 95th percentile, rounded to a tenth."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 1),
    }


async def _run(
    url: str, bodies: Sequence[tuple[str, Mapping[str, Any]]], *, clients: int, headers: dict[str, str]
) -> Load:
    samples: list[Sample] = []
    queue = iter(bodies)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=clients)
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, limits=limits, trust_env=False, headers=headers) as http:

        async def work() -> None:
            for key, body in queue:
                samples.append(await _ask(http, f"{url}/chat/completions", key, body))

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(clients)))
        return Load(clients, time.perf_counter() - started, samples)


async def _ask(http: httpx.AsyncClient, url: str, key: str, body: Mapping[str, Any]) -> Sample:
    sample = Sample(key, time.time())
    try:
        async with http.stream(
            "POST", url, json={**body, "stream": True, "stream_options": {"include_usage": True}}
        ) as answer:
            if answer.is_error:
                await answer.aread()
                sample.error = f"{answer.status_code}: {answer.text[:200]}"
                return sample
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    _take(sample, json.loads(line[6:]))
    except httpx.HTTPError as error:
        sample.error = f"{type(error).__name__}: {error}"
    finally:
        sample.ended_at = time.time()
    return sample


def _take(sample: Sample, chunk: Mapping[str, Any]) -> None:
    if chunk.get("error") or chunk.get("object") == "error":
        sample.error = json.dumps(chunk)[:300]
        return
    for choice in chunk.get("choices") or ():
        if text := (choice.get("delta") or {}).get("content"):
            sample.first_at = sample.first_at or time.time()
            sample.text += text
        if choice.get("finish_reason"):
            sample.last = dict(chunk)
    if usage := chunk.get("usage"):
        sample.prompt_tokens = usage["prompt_tokens"]
        sample.completion_tokens = usage["completion_tokens"]
        sample.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
