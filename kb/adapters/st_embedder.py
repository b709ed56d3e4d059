"""Vectors from a sentence-transformers folder on this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kb.adapters.chat_markup import replace_lone_surrogates
from kb.adapters.chat_tokenizer import load_tokenizer
from kb.errors import ConfigurationError, ModelCorruptError, ModelMissingError
from kb.model_files import hash_folder
from kb.ports import Vectors

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_HASH_CACHE = ".kb-hashes.json"
_PASSAGE_PROMPTS = ("document", "passage", "corpus")
_DESCRIPTIONS = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


class SentenceTransformersEmbedder:
    """Loads the tokenizer at the first count, and the weights at the first vector.

    A model loaded before a fork must not be used after it.
    """

    def __init__(self, *, path: Path, device: str, batch_size: int) -> None:
        self._path = path
        self._device = device
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._model: Any = None
        for name in ("config.json", "modules.json", "tokenizer.json"):
            if not (path / name).is_file():
                raise ModelMissingError(f"the embedder's file {str(path / name)!r} is missing")
        if not _list_weights(path):
            raise ModelMissingError(f"no weights in the embedder's folder {str(path)!r}")

    @cached_property
    def fingerprint(self) -> str:
        """See `kb.ports.Embedder`; from the content of the model's files, wherever they lie."""
        names = [name for name in _DESCRIPTIONS if (self._path / name).is_file()] + _list_weights(self._path)
        for module in self._modules:
            folder = self._path / module
            names += [
                file.relative_to(self._path).as_posix()
                for file in sorted(folder.glob("*"))
                if module and file.suffix in (".json", ".safetensors", ".bin")
            ]
        hashes = hash_folder(self._path, names, cache_name=_HASH_CACHE)
        listing = "\n".join(f"{name} {hashes[name]}" for name in sorted(set(names)))
        return f"st-{hashlib.sha256(listing.encode()).hexdigest()[:16]}"

    @cached_property
    def dimension(self) -> int:
        """See `kb.ports.Embedder`."""
        dimension = self._read("config.json").get("hidden_size")
        for module in self._modules:
            config = self._read(f"{module}/config.json") if module else {}
            dimension = config.get("out_features", config.get("word_embedding_dimension", dimension))
        if not isinstance(dimension, int):
            raise ModelCorruptError(f"{str(self._path / 'config.json')!r} does not say the vector's length")
        return dimension

    @cached_property
    def max_tokens(self) -> int:
        """See `kb.ports.Embedder`."""
        prompt = len(self._encode_one(self._passage_prompt)) if self._passage_prompt else 0
        return self._window - prompt

    def count_tokens(self, text: str) -> int:
        """See `kb.ports.Embedder`."""
        return len(self._encode_one(replace_lone_surrogates(text)))

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """See `kb.ports.Embedder`."""
        prompt = self._passage_prompt
        clean = [replace_lone_surrogates(text) for text in texts]
        lengths = [
            len(encoding)
            for encoding in self._tokenizer.encode_batch(
                [prompt + text for text in clean], add_special_tokens=False
            )
        ]
        for index, length in enumerate(lengths):
            if length > self._window:
                raise ValueError(
                    f"text {index} has {length} tokens with its prompt, the limit is {self._window}"
                )
        # one call for all batches: each costs the library some time of its own, which a fast card notices
        return self._embed(clean, prompt=prompt, task="document").reshape(len(clean), self.dimension)

    def embed_query(self, text: str) -> Vectors:
        """See `kb.ports.Embedder`."""
        prompt = self._prompts.get("query", "")
        text = replace_lone_surrogates(text)
        while len(encoding := self._encode_one(prompt + text)) > self._window:
            end = encoding.offsets[self._window - 1][1] - len(prompt)
            text = text[: max(0, min(end, len(text) - 1))]
        rows = self._embed([text], prompt=prompt, task="query")
        return rows.reshape(-1)

    @cached_property
    def _modules(self) -> list[str]:
        """Folders of the model's steps, relative to the model's own; the first is usually itself."""
        try:
            steps = json.loads((self._path / "modules.json").read_bytes())
            return [step["path"] for step in steps]
        except (ValueError, KeyError, TypeError) as error:
            raise ModelCorruptError(f"{str(self._path / 'modules.json')!r} is damaged: {error}") from error

    @cached_property
    def _prompts(self) -> dict[str, str]:
        prompts = self._read("config_sentence_transformers.json").get("prompts") or {}
        return {name: text for name, text in prompts.items() if isinstance(text, str)}

    @property
    def _passage_prompt(self) -> str:
        return next((self._prompts[name] for name in _PASSAGE_PROMPTS if self._prompts.get(name)), "")

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self._path)

    def _encode_one(self, text: str) -> Encoding:
        return self._tokenizer.encode(text, add_special_tokens=False)

    @cached_property
    def _window(self) -> int:
        """Tokens of prompt and text together, special tokens already taken off."""
        limit = self._read("sentence_bert_config.json").get("max_seq_length")
        if limit is None:
            limits = (
                self._read("config.json").get("max_position_embeddings"),
                self._read("tokenizer_config.json").get("model_max_length"),
            )
            limit = min((int(value) for value in limits if value), default=512)
        return int(limit) - self._tokenizer.num_special_tokens_to_add(is_pair=False)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self._path / name).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ModelCorruptError(f"{str(self._path / name)!r} is not valid JSON: {error}") from error
        return content if isinstance(content, dict) else {}

    def _embed(self, texts: list[str], *, prompt: str, task: str) -> Vectors:
        with self._lock:
            if self._model is None:
                self._model = self._load()
            encode = self._model.encode_query if task == "query" else self._model.encode_document
            rows = encode(
                texts,
                prompt=prompt,
                batch_size=self._batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=True,
            )
        return np.asarray(rows, dtype=np.float32)

    def _load(self) -> Any:
        from safetensors import SafetensorError
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        # Half precision saves disk space; on a CPU it is slower than float32 and less exact.
        dtype = "float32" if self._device == "cpu" else "auto"
        try:
            model = SentenceTransformer(
                str(self._path),
                device=self._device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": dtype},
            )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ModelCorruptError(
                f"the embedder in {str(self._path)!r} can't be loaded: {error}"
            ) from error
        probe = np.asarray(model.encode(["probe"], show_progress_bar=False))
        if probe.shape[1] != self.dimension:
            raise ConfigurationError(
                f"the embedder in {str(self._path)!r} makes vectors of {probe.shape[1]}, "
                f"its files say {self.dimension}",
                next_step="Copy the model folder again.",
            )
        return model


def _list_weights(folder: Path) -> list[str]:
    """Return the names of the weight files that are loaded; safetensors come first."""
    for pattern in ("model*.safetensors", "pytorch_model*.bin"):
        if names := sorted(file.name for file in folder.glob(pattern)):
            return names
    return []
