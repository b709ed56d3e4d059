"""A small chat model on this machine's CPU, run by CTranslate2."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from kb.adapters.chat_tokenizer import ChatTokenizer
from kb.adapters.stop_sequences import StopFilter
from kb.adapters.thinking_filter import ThinkingFilter
from kb.errors import GeneratorUnavailableError, ModelCorruptError, ModelMissingError, QuestionTooLongError
from kb.model_files import read_json_object
from kb.types import GenerationDelta, GenerationEnd, GenerationEvent, GenerationRequest, Sampling

_UNDECODABLE = "\ufffd"


class Ct2Generator:
    """Loads the weights at the first answer; one answer is written at a time, others wait.

    The library seeds its random numbers only when a model is loaded, so an answer with a seed and a
    temperature loads the weights again, which takes about a second for the starter model.

    `threads` 0 takes every CPU this process may use. A model loaded before a fork must not be used
    after it.
    """

    def __init__(self, *, path: Path, tokenizer_path: Path | None, threads: int, context_tokens: int) -> None:
        self._path = path
        self._tokenizer = ChatTokenizer(path=tokenizer_path or path)
        self._tokenizer_path = tokenizer_path or path
        self._threads = threads or _count_cpus()
        self._context_tokens = context_tokens
        # A plain lock, because an iterator may be advanced and closed by different threads.
        self._turn = threading.Lock()
        self._model: Any = None

    @cached_property
    def name(self) -> str:
        """See `kb.ports.Generator`."""
        named = read_json_object(self._tokenizer_path / "tokenizer_config.json").get("name_or_path")
        return Path(named).name if isinstance(named, str) and named else self._path.name

    @property
    def mode(self) -> str:
        """See `kb.ports.Generator`."""
        return "generated"

    def get_context_limit(self) -> int:
        """See `kb.ports.Generator`."""
        return self._context_tokens

    def ping(self) -> str:
        """See `kb.ports.Generator`; looks at the files and loads nothing."""
        for file in (self._path / "model.bin", self._tokenizer_path / "tokenizer.json"):
            if not file.is_file():
                raise ModelMissingError(f"the generator's file {str(file)!r} is missing")
        return f"{self.name} on {self._threads} CPU threads"

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """See `kb.ports.Generator`; raises `QuestionTooLongError` if there is no room for an answer."""
        self.ping()
        ids = self._tokenizer.encode_messages(request.messages, {"enable_thinking": request.think})
        room = self._context_tokens - len(ids)
        if room < 1:
            raise QuestionTooLongError(tokens=len(ids), limit_tokens=self._context_tokens)
        max_tokens = min(request.sampling.max_tokens, room)
        with self._turn:
            model = self._get_model(request.sampling)
            yield from self._write(model, ids, max_tokens, request)

    def _write(
        self, model: Any, ids: list[int], max_tokens: int, request: GenerationRequest
    ) -> Iterator[GenerationEvent]:
        from tokenizers.decoders import DecodeStream

        backend = self._tokenizer.backend
        pieces = DecodeStream(skip_special_tokens=True)  # gives only whole characters
        stop, thinking = StopFilter(request.sampling.stop), ThinkingFilter(begins_inside=request.think)
        written: list[int] = []
        finish_reason = "length"
        steps = self._iter_steps(
            model, [backend.id_to_token(index) or "" for index in ids], max_tokens, request.sampling
        )
        try:
            for step in steps:
                if step.token_id in self._tokenizer.end_ids:
                    finish_reason = "stop"
                    break
                written.append(step.token_id)
                text = (pieces.step(backend, step.token_id) or "").replace(_UNDECODABLE, "")
                if text := thinking.feed(stop.feed(text)):
                    yield GenerationDelta(text)
                if stop.stopped:
                    finish_reason = "stop"
                    break
        except RuntimeError as error:
            raise GeneratorUnavailableError(f"the local model failed: {error}") from error
        finally:
            steps.close()
        if len(written) < max_tokens:
            finish_reason = "stop"
        if rest := thinking.feed(stop.flush()) + thinking.flush(cut=finish_reason == "length"):
            yield GenerationDelta(rest)
        yield GenerationEnd(
            finish_reason,
            prompt_tokens=len(ids),
            completion_tokens=len(written),
            reasoning=thinking.reasoning.strip(),
        )

    def _iter_steps(self, model: Any, prompt: list[str], max_tokens: int, sampling: Sampling) -> Any:
        greedy = sampling.temperature == 0
        return model.generate_tokens(
            prompt,
            max_length=max_tokens,
            sampling_topk=1 if greedy else 0,
            sampling_topp=1.0 if greedy else sampling.top_p,
            sampling_temperature=1.0 if greedy else sampling.temperature,
            repetition_penalty=sampling.repetition_penalty,
            end_token=sorted(self._tokenizer.end_ids),
        )

    def _get_model(self, sampling: Sampling) -> Any:
        if sampling.seed is not None and sampling.temperature > 0:
            import ctranslate2

            self._model = None
            ctranslate2.set_random_seed(sampling.seed)
        if self._model is None:
            self._model = self._load()
        return self._model

    def _load(self) -> Any:
        import ctranslate2

        try:
            return ctranslate2.Generator(
                str(self._path), device="cpu", compute_type="int8", intra_threads=self._threads
            )
        except RuntimeError as error:
            raise ModelCorruptError(
                f"the generator in {str(self._path)!r} can't be loaded: {error}"
            ) from error


def _count_cpus() -> int:
    """Return the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
