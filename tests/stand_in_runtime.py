"""Stands in for SGLang as an executable: takes its command line, prints its log lines, speaks its HTTP API.

Tests make it die or wait by a file `stand_in.json` in the model's folder:
`largest_graph` (decode graphs beyond it run out of memory), `dies_with` (lines printed before it ends),
`helper_file` (a child process is started, its id written there), `words` (how many it answers with).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OUT_OF_MEMORY = """\
Capture CUDA graph begin. This can take up to several minutes. avail mem=0.41 GB
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 304.00 MiB. GPU 0 has a total capacity of 11.75 GiB
Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 304.00 MiB.
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)"""
START_LINES = (
    "Init torch distributed begin.",
    "Load weight begin. avail mem=11.20 GB",
    "Loading safetensors checkpoint shards: 100% Completed | 5/5 [00:01<00:00,  3.31it/s]",
    "Load weight end. elapsed=2.05 s, type=Qwen3ForCausalLM, quant=awq, avail mem=8.62 GB, mem usage=2.58 GB.",
    "KV Cache is allocated. #tokens: 56201, K size: 3.86 GB, V size: 3.86 GB",
    "Memory pool end. avail mem=0.91 GB",
)


class StandIn:
    """The state of one running stand-in."""

    def __init__(self, arguments: list[str]) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("-m", dest="module")
        for name in ("--model-path", "--served-model-name", "--host", "--context-length"):
            parser.add_argument(name)
        parser.add_argument("--port", type=int)
        parser.add_argument("--cuda-graph-max-bs-decode", type=int, default=0)
        parser.add_argument("--lora-paths", nargs="*", default=[])
        self.options, _ = parser.parse_known_args(arguments)
        self.model = Path(self.options.model_path)
        script = self.model / "stand_in.json"
        self.script: dict[str, Any] = json.loads(script.read_text("utf-8")) if script.is_file() else {}
        self.adapters = dict(pair.split("=", 1) for pair in self.options.lora_paths)
        self.running = 0
        self.lock = threading.Lock()

    def start(self) -> None:
        """Print what SGLang prints while it starts, then serve or die."""
        for line in START_LINES:
            print(line, flush=True)
        if self.options.cuda_graph_max_bs_decode > self.script.get("largest_graph", 1 << 20):
            print(OUT_OF_MEMORY, flush=True)
            sys.exit(1)
        if said := self.script.get("dies_with"):
            print(said, flush=True)
            sys.exit(1)
        if place := self.script.get("helper_file"):
            helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(place).write_text(str(helper.pid), encoding="utf-8")
        server = ThreadingHTTPServer((self.options.host, self.options.port), _build_handler(self))
        print("The server is fired up and ready to roll!", flush=True)
        server.serve_forever(poll_interval=0.02)

    def answer_get(self, path: str) -> tuple[int, object]:
        """Return status and content of a GET."""
        name, limit = self.options.served_model_name, int(self.options.context_length)
        match path:
            case "/health":
                return 200, ""
            case "/server_info":
                return 200, {"max_total_num_tokens": 56201, "version": "stand-in", "context_length": limit}
            case "/v1/models":
                base = {"id": name, "root": name, "max_model_len": limit}
                loaded = [
                    {"id": key, "root": value, "parent": name, "max_model_len": None}
                    for key, value in self.adapters.items()
                ]
                return 200, {"object": "list", "data": [base, *loaded]}
            case "/metrics":
                lines = {"sglang:num_running_reqs": self.running, "sglang:num_queue_reqs": 0}
                return 200, "".join(
                    f'{key}{{model_name="{name}"}} {value}.0\n' for key, value in lines.items()
                )
        return 404, {"object": "error", "message": "Not Found", "code": 404}

    def answer_post(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        """Return status and content of a POST that is not streamed."""
        match path:
            case "/tokenize":
                ids = self.encode(body)
                return 200, {"tokens": ids, "count": len(ids)}
            case "/load_lora_adapter":
                self.adapters[body["lora_name"]] = body["lora_path"]
                return 200, {"success": True}
            case "/unload_lora_adapter":
                if self.adapters.pop(body["lora_name"], None) is None:
                    return 400, {"success": False, "error_message": "no such adapter"}
                return 200, {"success": True}
            case "/flush_cache":
                return 200, ""
        return 404, {"object": "error", "message": "Not Found", "code": 404}

    def encode(self, body: dict[str, Any]) -> list[int]:
        """Return the token ids of a prompt or of messages."""
        from kb.adapters.chat_tokenizer import ChatTokenizer
        from kb.types import Message

        with self.lock:
            if not hasattr(self, "tokenizer"):
                self.tokenizer = ChatTokenizer(path=self.model)
        if isinstance(body.get("prompt"), str):
            return list(self.tokenizer.encode_text(body["prompt"]).ids)
        messages = [Message(turn["role"], turn["content"]) for turn in body["messages"]]
        return self.tokenizer.encode_messages(messages, body.get("chat_template_kwargs", {}))


def _build_handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._reply(*stand_in.answer_get(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if self.path == "/v1/chat/completions":
                self._complete(body)
            else:
                self._reply(*stand_in.answer_post(self.path, body))

        def _complete(self, body: dict[str, Any]) -> None:
            count, limit = len(stand_in.encode(body)), int(stand_in.options.context_length)
            if count + body["max_tokens"] > limit:
                message = f"Requested token count exceeds the model's maximum context length of {limit} tokens: {count}."
                self._reply(400, {"object": "error", "message": message, "code": 400})
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            stand_in.running += 1
            try:
                self._stream(count, min(body["max_tokens"], stand_in.script.get("words", 200)))
            except OSError:
                pass
            finally:
                stand_in.running -= 1
            self.close_connection = True

        def _stream(self, prompt_tokens: int, words: int) -> None:
            for number in range(words):
                self._send(
                    {"choices": [{"index": 0, "delta": {"content": f"w{number} "}, "finish_reason": None}]}
                )
                time.sleep(0.002)
            self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
            usage = {"prompt_tokens": prompt_tokens, "completion_tokens": words}
            self._send({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, chunk: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        def _reply(self, status: int, content: object) -> None:
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    StandIn(sys.argv[1:]).start()
