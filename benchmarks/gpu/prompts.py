"""The prompts that the service makes of questions, taken before they reach a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from kb.bootstrap import build
from kb.settings import Settings
from kb.types import GenerationEnd, GenerationEvent, GenerationRequest, Message, Sampling


class _Recorder:
    """A generator that remembers what it was asked and writes nothing."""

    name, mode = "recorder", "generated"

    def __init__(self, *, context_tokens: int) -> None:
        self._context_tokens = context_tokens
        self.prompts: dict[str, tuple[Message, ...]] = {}

    def get_context_limit(self) -> int:
        """Return the limit of the runtime that will get the prompts."""
        return self._context_tokens

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """Remember the prompt."""
        self.prompts[request.question] = request.messages
        yield GenerationEnd("stop", prompt_tokens=0, completion_tokens=0)

    def ping(self) -> str:
        """Say that it is there."""
        return "recorder"


def record_prompts(
    settings: Settings, collection: str, questions: Sequence[str], *, context_tokens: int, sampling: Sampling
) -> dict[str, tuple[Message, ...]]:
    """Return the messages by question."""
    recorder = _Recorder(context_tokens=context_tokens)
    knowledge = build(settings, generator=recorder)
    try:
        found = knowledge.catalog.get_collection(collection)
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda question: knowledge.answerer.answer(found, question, sampling=sampling), questions
                )
            )
    finally:
        knowledge.close()
    return recorder.prompts
