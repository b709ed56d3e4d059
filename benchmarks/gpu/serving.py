"""The service in front of SGLang against SGLang alone, with the same prompts, in one run.

    python -m benchmarks.gpu.serving --api URL --runtime URL --times FILE [--levels 1,10,32] [--out FILE]

The API is `benchmarks.gpu.timed_api`, which writes FILE; its stores are named by the settings of the
environment. Documents are drawn and ingested into the collection `benchmark` unless they are there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.gpu.corpus import build_document, build_question, build_sections
from benchmarks.gpu.load import Load, run_load, summarise
from benchmarks.gpu.prompts import record_prompts
from kb.runtime.client import RuntimeClient
from kb.settings import load_settings
from kb.types import Sampling

COLLECTION = "benchmark"
_SECTIONS = 400
_TEMPERATURE, _TOP_P = 1.0, 0.95


def main() -> None:
    """Measure, and print one JSON line a level."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--api", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--levels", default="1,10,32,64,128")
    parser.add_argument("--rounds", type=int, default=3, help="requests of each client")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--modes", default="shared,unshared")
    parser.add_argument("--limit-s", type=float, default=420.0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    until = time.monotonic() + chosen.limit_s
    bench = Bench(chosen.api, chosen.runtime, chosen.times, tokens=chosen.tokens)
    bench.ingest()
    lines = []
    for mode in chosen.modes.split(","):
        for level in (int(number) for number in chosen.levels.split(",")):
            if time.monotonic() > until:
                lines.append({"mode": mode, "clients": level, "skipped": "no time left"})
                continue
            requests = max(6, level * (chosen.rounds if level < 64 else 2))
            lines.append(bench.measure(mode, clients=level, requests=requests))
            print(json.dumps(lines[-1]), flush=True)
            if chosen.out:
                chosen.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


class Bench:
    """One service and one runtime."""

    def __init__(self, api: str, runtime: str, times: Path, *, tokens: int) -> None:
        self._api = api.rstrip("/")
        self._runtime = runtime.rstrip("/")
        self._times = times
        self._tokens = tokens
        self._number = 0
        self._http = httpx.Client(base_url=self._api, timeout=300, trust_env=False)
        with RuntimeClient(runtime) as client:
            models = client.list_models()
        self._model = models[0]["id"]
        self._context_tokens = int(models[0]["max_model_len"])

    def ingest(self) -> None:
        """Put the drawn manual into the collection, and wait until it can be searched."""
        if self._http.post("/v1/collections", json={"name": COLLECTION}).status_code == 409:
            return
        content = build_document(build_sections(_SECTIONS)).encode()
        sent = self._http.post(
            f"/v1/collections/{COLLECTION}/documents",
            files={"files": ("service.md", content, "text/markdown")},
        )
        sent.raise_for_status()
        document = sent.json()["results"][0]["document"]["id"]
        while True:
            state = self._http.get(f"/v1/collections/{COLLECTION}/documents/{document}").json()["state"]
            if state.startswith("ready"):
                return
            if state in ("failed", "cancelled"):
                raise SystemExit(f"the document is {state}")
            time.sleep(0.3)

    def measure(self, mode: str, *, clients: int, requests: int) -> dict[str, Any]:
        """Return one line: SGLang alone, then the service, with the same prompts."""
        questions = self._draw_questions(mode, requests)
        sampling = Sampling(max_tokens=self._tokens, temperature=_TEMPERATURE, top_p=_TOP_P)
        prompts = record_prompts(
            load_settings(), COLLECTION, questions, context_tokens=self._context_tokens, sampling=sampling
        )
        shared: dict[str, Any] = {"max_tokens": self._tokens, "temperature": _TEMPERATURE, "top_p": _TOP_P}
        alone_bodies = [
            (
                question,
                shared
                | {
                    "model": self._model,
                    "messages": [{"role": turn.role, "content": turn.content} for turn in prompts[question]],
                    "repetition_penalty": sampling.repetition_penalty,
                    "chat_template_kwargs": {"enable_thinking": False},
                },
            )
            for question in questions
        ]
        api_bodies = [
            (question, shared | {"model": COLLECTION, "messages": [{"role": "user", "content": question}]})
            for question in questions
        ]
        self._flush()
        alone = run_load(f"{self._runtime}/v1", alone_bodies, clients=clients)
        self._flush()
        before = self._read_retrieval()
        place = self._times.stat().st_size if self._times.exists() else 0
        service = run_load(f"{self._api}/v1", api_bodies, clients=clients)
        retrieval_ms = self._read_retrieval_since(before)
        times = self._read_times(place)
        return self._compare(mode, alone, service, times=times, retrieval_ms=retrieval_ms)

    def _compare(
        self, mode: str, alone: Load, service: Load, *, times: dict[str, dict[str, Any]], retrieval_ms: float
    ) -> dict[str, Any]:
        sent = {sample.key: sample.sent_at for sample in service.samples}
        first = [
            (times[key]["first_at"] - at) * 1000
            for key, at in sent.items()
            if times.get(key, {}).get("first_at")
        ]
        ready = [(times[key]["asked_at"] - at) * 1000 for key, at in sent.items() if key in times]
        written = sum(entry["completion_tokens"] for entry in times.values())
        alone_ttft = [sample.ttft_ms for sample in alone.samples if sample.ttft_ms is not None]
        # the last token at the generator ends a generation; what the service does afterwards is not its time
        ended = [entry["ended_at"] for entry in times.values()]
        span_s = max(ended) - min(sent.values()) if ended else 0.0
        rates = {
            "alone": alone.tokens_per_s,
            "service": written / service.wall_s if service.wall_s else 0.0,
        }
        line: dict[str, Any] = {
            "mode": mode,
            "clients": alone.clients,
            "requests": len(alone.samples),
            "alone": {
                "tokens_per_s": round(rates["alone"], 1),
                "ttft_ms": summarise(alone_ttft),
                "prompt_tokens": _mean([sample.prompt_tokens for sample in alone.samples]),
                "completion_tokens": _mean([sample.completion_tokens for sample in alone.samples]),
                "cached_tokens": _mean([sample.cached_tokens for sample in alone.samples]),
                "failed": len(alone.failed),
            },
            "service": {
                "tokens_per_s": round(rates["service"], 1),
                "tokens_per_s_to_last_token": round(written / span_s, 1) if span_s else 0.0,
                "first_token_ms": summarise(first),
                "prompt_ready_ms": summarise(ready),
                "retrieval_ms_mean": round(retrieval_ms, 1),
                "prompt_tokens": _mean([entry["prompt_tokens"] for entry in times.values()]),
                "completion_tokens": _mean([entry["completion_tokens"] for entry in times.values()]),
                "cached_tokens": _mean([entry["cached_tokens"] for entry in times.values()]),
                "looped": sum(bool(entry["looped"]) for entry in times.values()),
                "broken_off": sum(not entry["ended"] for entry in times.values()),
                "failed": len(service.failed),
                "errors": sorted({sample.error for sample in service.failed})[:3],
            },
        }
        if rates["alone"]:
            line["tokens_per_s_ratio"] = round(rates["service"] / rates["alone"], 3)
        if first and alone_ttft:
            line["first_token_extra_ms"] = round(statistics.median(first) - statistics.median(alone_ttft), 1)
            line["first_token_extra_beyond_retrieval_ms"] = round(
                line["first_token_extra_ms"] - retrieval_ms, 1
            )
        return line

    def _draw_questions(self, mode: str, count: int) -> list[str]:
        """Return new questions: about one machine with endings of their own, or about one each."""
        questions = []
        for _ in range(count):
            self._number += 1
            machine = 7 if mode == "shared" else self._number % _SECTIONS
            questions.append(build_question(machine, variant=self._number))
        return questions

    def _flush(self) -> None:
        with RuntimeClient(self._runtime) as client:
            client.flush_cache()
        time.sleep(0.3)

    def _read_retrieval(self) -> tuple[float, float]:
        lines = self._http.get("/metrics").text.splitlines()
        values = {
            line.split(" ")[0]: float(line.split(" ")[1])
            for line in lines
            if line.startswith("kb_retrieval_seconds_") and "{" not in line
        }
        return values.get("kb_retrieval_seconds_sum", 0.0), values.get("kb_retrieval_seconds_count", 0.0)

    def _read_retrieval_since(self, before: tuple[float, float]) -> float:
        total, count = self._read_retrieval()
        return (total - before[0]) / max(1.0, count - before[1]) * 1000

    def _read_times(self, place: int) -> dict[str, dict[str, Any]]:
        with self._times.open(encoding="utf-8") as file:
            file.seek(place)
            return {entry["question"]: entry for entry in map(json.loads, file)}


def _mean(values: list[int]) -> float:
    return round(statistics.mean(values), 1) if values else 0.0


if __name__ == "__main__":
    main()
