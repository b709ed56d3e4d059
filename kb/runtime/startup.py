"""How far a starting runtime is, read from its log."""

from __future__ import annotations

import re
from pathlib import Path

_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"fired up and ready to roll"), "warms up"),
    (re.compile(r"Capturing batches[^\n]*?(\d+)%"), "captures decode graphs, {}%"),
    (re.compile(r"Capture (?:cuda|CUDA) graph begin"), "captures decode graphs"),
    (re.compile(r"(?:Memory pool end|KV Cache is allocated)"), "has its KV cache"),
    (re.compile(r"Load weight end"), "has loaded the weights"),
    (
        re.compile(r"(?:Loading safetensors checkpoint shards|Multi-thread loading shards)[^\n]*?(\d+)%"),
        "loads the weights, {}%",
    ),
    (re.compile(r"Load weight begin"), "loads the weights"),
    (re.compile(r"Init torch distributed"), "starts CUDA"),
)
_COMPILES = re.compile(r"ninja|nvcc|Compiling|JIT|jit_kernel|\[\d+/\d+\]", re.IGNORECASE)
_TAIL_BYTES = 64 * 1024


def read_log(path: Path, *, offset: int = 0, most_bytes: int = _TAIL_BYTES) -> str:
    """Return the end of what was written after byte `offset`; "" if there is no file."""
    try:
        with path.open("rb") as stream:
            end = stream.seek(0, 2)
            stream.seek(max(offset, end - most_bytes))
            return stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def describe_progress(log: str) -> str:
    """Return what the runtime does, such as `loads the weights, 40%`."""
    for pattern, said in _STEPS:
        matches = list(pattern.finditer(log))
        if not matches:
            continue
        last = matches[-1]
        if _COMPILES.search(log[last.end() :]):
            return "compiles kernels, which takes minutes at the first start"
        return said.format(*last.groups())
    return "starts"
