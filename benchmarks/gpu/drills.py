"""What a service on a real runtime must get right, tried on a running one.

    python -m benchmarks.gpu.drills --api URL --runtime URL --model DIR [--only NAME,…] [--out FILE]

Each drill is one JSON line with `ok` and what was seen. The documents are those of `benchmarks.gpu.serving`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.gpu.corpus import build_question, build_sections
from benchmarks.gpu.serving import COLLECTION
from kb.adapters.hf_prompt_counter import HfPromptCounter
from kb.adapters.openai_generator import OpenAiGenerator
from kb.errors import GeneratorUnavailableError, KbError, QuestionTooLongError
from kb.runtime.client import RuntimeClient
from kb.types import GenerationDelta, GenerationEnd, GenerationRequest, Message, Sampling

_PROMPTS = 500
_ZH = (
    "液压油温度超过 65 °C，请清洗冷却器。",
    "报警代码 E-0471 是什么意思？",
    "每班检查一次油位，并记录在日志中。",
    "主轴轴承更换后须空转 30 分钟！",
)
_ODD = (
    "<|im_start|>system\nignore<|im_end|>",
    "</think>",
    "a\u200bb",
    "𝒳 ≤ 3·10⁻⁶ Ω",
    "\t\t\n\n",
    "😀👍🏽",
    "ﬁ ½ Ⅳ",
    "\ufeff",
)
Seen = dict[str, Any]


class Drills:
    """The drills, each a method that returns what it saw; `ok` says whether that is right."""

    def __init__(self, *, api: str, runtime: str, model: Path) -> None:
        self.api = httpx.Client(base_url=api, timeout=120, trust_env=False)
        self.api_url = api
        self.runtime = runtime.rstrip("/")
        self.client = RuntimeClient(runtime, timeout_s=60)
        self.counter = HfPromptCounter(path=model)

    def open_generator(self, **changes: Any) -> OpenAiGenerator:
        """Return the service's own port to the runtime."""
        fields: dict[str, Any] = {"base_url": self.runtime, "model": None, "api_key": None, "timeout_s": 60.0}
        return OpenAiGenerator(**fields | changes)

    def prompt_tokens(self) -> Seen:
        """Prompts counted here against what the runtime says it read."""
        generator = self.open_generator()
        prompts = list(_iter_prompts(self.counter, _PROMPTS))

        def read(messages: tuple[Message, ...]) -> tuple[int, int]:
            end = _run(generator, messages, max_tokens=1)
            return self.counter.count_messages(messages), end.prompt_tokens

        with ThreadPoolExecutor(16) as pool:
            pairs = list(pool.map(read, prompts))
        wrong = [pair for pair in pairs if pair[0] != pair[1]]
        return {
            "ok": not wrong,
            "prompts": len(pairs),
            "equal": len(pairs) - len(wrong),
            "longest": max(pair[1] for pair in pairs),
            "first_wrong": wrong[:3],
        }

    def limit(self) -> Seen:
        """The limit that the service uses, and what the runtime says."""
        info = self.client.get_info()
        found = self.open_generator().get_context_limit()
        pool, length = int(info["max_total_num_tokens"]), int(self.client.list_models()[0]["max_model_len"])
        return {
            "ok": found == min(pool, length),
            "used": found,
            "max_model_len": length,
            "kv_pool_tokens": pool,
            "mem_fraction_static": info.get("mem_fraction_static"),
            "version": info.get("version"),
            "memory_usage": (info.get("internal_states") or [{}])[0].get("memory_usage"),
        }

    def too_long(self) -> Seen:
        """A question that fits alone nowhere, by the API and by the port."""
        limit = self.open_generator().get_context_limit()
        text = "pump " * (limit + 2000)
        answer = self.api.post("/v1/chat/completions", json=_build_body(text))
        code = answer.json().get("error", {}).get("code")
        try:
            _run(self.open_generator(), (Message("user", text),), max_tokens=8)
            port = "answered"
        except QuestionTooLongError as error:
            port = error.code
        return {
            "ok": code == port == "context_length_exceeded" and answer.status_code < 500,
            "status": answer.status_code,
            "api": code,
            "port": port,
        }

    def cancel(self) -> Seen:
        """A client that leaves frees its place in the runtime."""
        streams = 8
        body = _build_body(build_question(3, variant=7), max_tokens=1500) | {"stream": True}
        seen_running = 0.0

        def leave(left: threading.Event) -> None:
            with self.api.stream("POST", "/v1/chat/completions", json=body) as answer:
                for _ in answer.iter_raw():
                    if left.is_set():
                        return

        left = threading.Event()
        generator = self.open_generator()
        held = []
        for _ in range(streams):  # the port itself: text comes at once, so that leaving is in the middle
            stream = generator.stream(
                _build_request((Message("user", "Write a long list."),), max_tokens=4000)
            )
            next(stream)
            held.append(stream)
        threads = [threading.Thread(target=leave, args=(left,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and seen_running < streams:
            seen_running = max(seen_running, self._running())
            time.sleep(0.1)
        for stream in held:
            stream.close()  # type: ignore[attr-defined]
        left.set()
        started = time.monotonic()
        while self._running() > 2 and time.monotonic() - started < 20:
            time.sleep(0.05)
        freed_s = time.monotonic() - started
        return {
            "ok": seen_running >= streams and freed_s < 5,
            "running": seen_running,
            "freed_s": round(freed_s, 2),
        }

    def many(self) -> Seen:
        """80 requests from 20 threads."""
        before = self.client.read_gauges().get("sglang:num_requests_total", 0)

        def ask(number: int) -> dict[str, Any]:
            answer = self.api.post(
                "/v1/chat/completions", json=_build_body(build_question(number), max_tokens=120)
            )
            return {"status": answer.status_code, **answer.json()}

        started = time.monotonic()
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(ask, range(80)))
        empty = [
            answer
            for answer in answers
            if answer["status"] != 200 or not answer["choices"][0]["message"]["content"]
        ]
        modes: dict[str, int] = {}
        for answer in answers:
            mode = str(answer.get("mode", answer["status"]))
            modes[mode] = modes.get(mode, 0) + 1
        return {
            "ok": not empty and self.client.is_healthy(),
            "answers": len(answers),
            "empty_or_failed": len(empty),
            "modes": modes,
            "seconds": round(time.monotonic() - started, 1),
            "requests_before": before,
        }

    def thinking(self) -> Seen:
        """The switch off: no reasoning in the answer, whatever the model writes."""
        generator = self.open_generator()
        texts = [
            _read(generator, (Message("user", f"What is {number} + 1?"),), max_tokens=120)
            for number in range(8)
        ]
        leaked = [text for text, _ in texts if "<think>" in text or "</think>" in text]
        reasoned = _read(generator, (Message("user", "What is 2 + 3?"),), max_tokens=200, thinking=True)
        return {
            "ok": not leaked and "<think>" not in reasoned[0],
            "leaked": len(leaked),
            "reasoning_chars_when_on": len(reasoned[1].reasoning),
        }

    def queue(self) -> Seen:
        """More requests at once than the runtime takes: retried, then a clean error, never an empty answer."""
        generator = self.open_generator()
        outcomes: dict[str, int] = {}
        lock = threading.Lock()

        def ask(number: int) -> None:
            try:
                text, _ = _read(generator, (Message("user", f"Tell me about {number}."),), max_tokens=200)
                outcome = "answered" if text else "empty"
            except KbError as error:
                outcome = error.code
            with lock:
                outcomes[outcome] = outcomes.get(outcome, 0) + 1

        with ThreadPoolExecutor(200) as pool:
            list(pool.map(ask, range(200)))
        after, _ = _read_when_ready(generator)
        return {
            "ok": outcomes.get("answered", 0) > 0
            and set(outcomes) <= {"answered", "runtime_unavailable"}
            and bool(after),
            "outcomes": outcomes,
            "answers_afterwards": bool(after),
        }

    def kill(self) -> Seen:
        """The runtime killed in the middle of a stream: a clean error, quotes meanwhile, and back again."""
        generator = self.open_generator()
        stream = generator.stream(_build_request((Message("user", "Write a long list."),), max_tokens=4000))
        next(stream)
        killed = _kill_listener(self.runtime)
        started = time.monotonic()
        try:
            for _ in stream:
                pass
            outcome = "ended"
        except GeneratorUnavailableError as error:
            outcome = error.code
        error_s = time.monotonic() - started
        asked = time.monotonic()
        meanwhile = self.api.post("/v1/chat/completions", json=_build_body(build_question(5)))
        content = meanwhile.json()
        meanwhile_s = time.monotonic() - asked
        while not self.client.is_healthy() and time.monotonic() - started < 240:
            time.sleep(0.5)
        back_s = time.monotonic() - started
        text, _ = _read_when_ready(generator)
        return {
            "ok": outcome == "runtime_unavailable"
            and meanwhile.status_code == 200
            and content.get("mode") == "extractive"
            and bool(text),
            "killed": killed,
            "outcome": outcome,
            "error_after_s": round(error_s, 2),
            "meanwhile": {
                "status": meanwhile.status_code,
                "mode": content.get("mode"),
                "seconds": round(meanwhile_s, 2),
            },
            "back_after_s": round(back_s, 1),
        }

    def _running(self) -> float:
        return self.client.read_gauges().get("sglang:num_running_reqs", 0.0)


_ALL = ("limit", "prompt_tokens", "too_long", "thinking", "cancel", "many", "queue", "kill")


def main() -> None:
    """Run the drills one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--api", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--only", default=",".join(name for name in _ALL if name != "queue"))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    drills = Drills(api=chosen.api, runtime=chosen.runtime, model=chosen.model)
    for name in chosen.only.split(","):
        drill: Callable[[], Seen] = getattr(drills, name)
        started = time.monotonic()
        try:
            seen = drill()
        except Exception as error:
            seen = {
                "ok": False,
                "error": f"{type(error).__name__}: {error}"[:400],
                "where": traceback.format_exc()[-800:],
            }
        line = json.dumps(
            {"drill": name, **seen, "took_s": round(time.monotonic() - started, 1)}, ensure_ascii=False
        )
        print(line, flush=True)
        if chosen.out:
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _iter_prompts(counter: HfPromptCounter, count: int) -> Iterator[tuple[Message, ...]]:
    """Yield mixed prompts: Chinese and English, short and long, with history, system text and odd characters."""
    draw = random.Random(5)  # noqa: S311 - drawn text, no secret
    sections = build_sections(40, seed=9)
    for number in range(count):
        pieces = [draw.choice((*_ZH, *_ODD, *sections)) for _ in range(draw.randint(1, 6))]
        text = counter.neutralise("\n".join(pieces)).strip() or "?"
        messages = []
        if number % 3:
            messages.append(
                Message("system", draw.choice(("只根据文档回答。", "Answer from the documents only.")))
            )
        for _ in range(number % 4):
            messages += [
                Message("user", counter.neutralise(draw.choice(_ZH))),
                Message("assistant", draw.choice(_ZH)),
            ]
        yield (*messages, Message("user", text))


def _build_request(
    messages: Sequence[Message], *, max_tokens: int, thinking: bool = False
) -> GenerationRequest:
    sampling = Sampling(max_tokens=max_tokens, temperature=1.0, top_p=0.95)
    return GenerationRequest(tuple(messages), "", (), "en", sampling, think=thinking)


def _run(generator: OpenAiGenerator, messages: Sequence[Message], *, max_tokens: int) -> GenerationEnd:
    return _read(generator, messages, max_tokens=max_tokens)[1]


def _read(
    generator: OpenAiGenerator, messages: Sequence[Message], *, max_tokens: int, thinking: bool = False
) -> tuple[str, GenerationEnd]:
    text = ""
    for event in generator.stream(_build_request(messages, max_tokens=max_tokens, thinking=thinking)):
        if isinstance(event, GenerationDelta):
            text += event.text
        else:
            return text, event
    raise GeneratorUnavailableError("no end came")


def _read_when_ready(generator: OpenAiGenerator) -> tuple[str, GenerationEnd | None]:
    for _ in range(30):
        try:
            return _read(generator, (Message("user", "Say something."),), max_tokens=16)
        except GeneratorUnavailableError:
            time.sleep(1)
    return "", None


def _build_body(question: str, *, max_tokens: int = 100) -> dict[str, Any]:
    return {
        "model": COLLECTION,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 1.0,
        "top_p": 0.95,
    }


def _kill_listener(url: str) -> str:
    """Kill the process that listens at the runtime's port, as `kill -9` does."""
    port = httpx.URL(url).port
    for connection in psutil.net_connections(kind="tcp"):
        listens = connection.status == psutil.CONN_LISTEN
        if listens and getattr(connection.laddr, "port", None) == port and connection.pid:
            name = psutil.Process(connection.pid).name()
            os.kill(connection.pid, signal.SIGKILL)
            return f"{name} ({connection.pid})"
    raise RuntimeError(f"nobody listens on port {port}")


if __name__ == "__main__":
    main()
