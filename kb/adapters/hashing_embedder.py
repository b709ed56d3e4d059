"""Vectors from hashed words: no weights, no meaning, for tests and machines without a model."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from kb.language import is_cjk
from kb.ports import Vectors

_VERSION = 1
_MAX_TOKENS = 512
_TOKEN = re.compile(r"[㐀-鿿豈-﫿]|[^\W㐀-鿿豈-﫿]+|[^\w\s]")


class HashingEmbedder:
    """Signed feature hashing (Weinberger et al. 2009) over words, codes and Chinese bigrams.

    Texts that share words are near each other; the same text has the same vector on every machine.
    """

    def __init__(self, *, dimension: int = 256) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, not {dimension!r}")
        self._dimension = dimension

    @property
    def fingerprint(self) -> str:
        """See `kb.ports.Embedder`."""
        return f"hashing-v{_VERSION}-{self._dimension}"

    @property
    def dimension(self) -> int:
        """See `kb.ports.Embedder`."""
        return self._dimension

    @property
    def max_tokens(self) -> int:
        """See `kb.ports.Embedder`."""
        return _MAX_TOKENS

    def count_tokens(self, text: str) -> int:
        """See `kb.ports.Embedder`; a Chinese character, a word or a punctuation mark is one."""
        return sum(1 for _ in _TOKEN.finditer(text))

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """See `kb.ports.Embedder`."""
        for index, text in enumerate(texts):
            if (count := self.count_tokens(text)) > _MAX_TOKENS:
                raise ValueError(f"text {index} has {count} tokens, the limit is {_MAX_TOKENS}")
        rows = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = self._embed(text)
        return rows

    def embed_query(self, text: str) -> Vectors:
        """See `kb.ports.Embedder`."""
        return self._embed(text)

    def _embed(self, text: str) -> Vectors:
        vector = np.zeros(self._dimension, dtype=np.float64)
        for feature, count in Counter(_iter_features(text)).items():
            bucket, sign = self._place(feature)
            vector[bucket] += sign * (1 + math.log(count))
        length = float(np.linalg.norm(vector))
        if length < 1e-9:  # no word at all, or words that cancel each other out
            vector[self._place(text)[0]] = length = 1.0
        return (vector / length).astype(np.float32)

    def _place(self, feature: str) -> tuple[int, int]:
        digest = hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        return (number >> 1) % self._dimension, 1 if number & 1 else -1


def _iter_features(text: str) -> Iterator[str]:
    before = ""
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text).lower()):
        token = match.group()
        if is_cjk(token[0]):
            yield token
            if before:
                yield before + token
            before = token
        else:
            before = ""
            if token[0].isalnum():
                yield token
