"""Embedding on the GPU through the service's embedder against the bare model, on the same texts.

python -m benchmarks.gpu.embedding --embedder DIR [--device cuda] [--texts N] [--batches 16,64,256]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from benchmarks.gpu.corpus import build_sections
from kb.adapters.st_embedder import SentenceTransformersEmbedder


def main() -> None:
    """Measure, and print one JSON line a batch size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--embedder", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--batches", default="16,64,256")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    texts = _build_texts(chosen.texts)
    lines = []
    for batch in (int(number) for number in chosen.batches.split(",")):
        ours_s, ours = _time_ours(chosen.embedder, chosen.device, batch, texts)
        bare_s, bare = _time_bare(chosen.embedder, chosen.device, batch, texts)
        lines.append(
            {
                "batch": batch,
                "device": chosen.device,
                "texts": len(texts),
                "service_texts_per_s": round(len(texts) / ours_s, 1),
                "bare_texts_per_s": round(len(texts) / bare_s, 1),
                "ratio": round(bare_s / ours_s, 3),
                "least_cosine": round(float(np.min(np.sum(ours * bare, axis=1))), 5),
            }
        )
        print(json.dumps(lines[-1]), flush=True)
    if chosen.out:
        chosen.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _build_texts(count: int) -> list[str]:
    """Return texts of mixed lengths, as chunks have."""
    sections = build_sections(max(1, count // 4), seed=3)
    return [section[: 200 + 300 * part] for section in sections for part in range(4)][:count]


def _time_ours(path: Path, device: str, batch: int, texts: list[str]) -> tuple[float, np.ndarray]:
    embedder = SentenceTransformersEmbedder(path=path, device=device, batch_size=batch)
    embedder.embed_passages(texts[: 2 * batch])
    started = time.perf_counter()
    vectors = embedder.embed_passages(texts)
    return time.perf_counter() - started, vectors


def _time_bare(path: Path, device: str, batch: int, texts: list[str]) -> tuple[float, np.ndarray]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device=device)
    prompted = [f"passage: {text}" for text in texts]
    model.encode(prompted[: 2 * batch], batch_size=batch)
    started = time.perf_counter()
    vectors = model.encode(prompted, batch_size=batch, normalize_embeddings=True, convert_to_numpy=True)
    return time.perf_counter() - started, np.asarray(vectors)


if __name__ == "__main__":
    main()
