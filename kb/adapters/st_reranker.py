"""A sentence-transformers CrossEncoder folder on this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kb.adapters.chat_markup import replace_lone_surrogates
from kb.errors import ModelCorruptError, ModelMissingError
from kb.model_files import hash_folder

_HASH_CACHE = ".kb-hashes.json"
_FILES = ("*.json", "*.safetensors", "pytorch_model*.bin", "*.model", "vocab.txt")


class SentenceTransformersReranker:
    """Loads the weights at the first question. A model loaded before a fork must not be used after it."""

    def __init__(self, *, path: Path, device: str) -> None:
        self._path = path
        self._device = device
        self._lock = threading.Lock()
        self._model: Any = None
        if not (path / "config.json").is_file():
            raise ModelMissingError(f"the reranker's file {str(path / 'config.json')!r} is missing")

    @cached_property
    def fingerprint(self) -> str:
        """See `kb.ports.Reranker`; from the content of the model's files, wherever they lie."""
        names = sorted(
            {
                file.name
                for pattern in _FILES
                for file in self._path.glob(pattern)
                if not file.name.startswith(".")
            }
        )
        hashes = hash_folder(self._path, names, cache_name=_HASH_CACHE)
        listing = "\n".join(f"{name} {hashes[name]}" for name in names)
        return f"ce-{hashlib.sha256(listing.encode()).hexdigest()[:16]}"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """See `kb.ports.Reranker`."""
        if not texts:
            return []
        pairs = [(replace_lone_surrogates(query), replace_lone_surrogates(text)) for text in texts]
        with self._lock:
            if self._model is None:
                self._model = self._load()
            rows = self._model.predict(
                pairs, activation_fn=self._sigmoid, show_progress_bar=False, convert_to_numpy=True
            )
        return [float(value) for value in np.asarray(rows, dtype=np.float64).reshape(-1)]

    def _load(self) -> Any:
        from safetensors import SafetensorError
        from sentence_transformers import CrossEncoder
        from torch.nn import Sigmoid
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        self._sigmoid = Sigmoid()
        try:
            model = CrossEncoder(
                str(self._path),
                device=self._device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": "float32" if self._device == "cpu" else "auto"},
            )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ModelCorruptError(
                f"the reranker in {str(self._path)!r} can't be loaded: {error}"
            ) from error
        if model.num_labels != 1:
            raise ModelCorruptError(
                f"the reranker in {str(self._path)!r} gives {model.num_labels} values a passage, not one"
            )
        return model
