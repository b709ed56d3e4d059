"""What an answer is while it is made, and what its receipt will say of that."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kb.citations import CitationChecker
from kb.presets import PresetName
from kb.prompt import Prompt
from kb.receipts import hash_messages, mark_passages
from kb.retrieval import Retrieval
from kb.types import Answer, AnswerDelta, Collection, Message, Receipt, Sampling


@dataclass(slots=True)
class Draft:
    """An answer while it grows; `text` is what was emitted so far."""

    answer: Answer
    checker: CitationChecker
    text: str = ""
    refused_by_model: bool = False
    notices: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = "stop"
    gap: str = ""

    def add(self, sentence: str, checked: str) -> str:
        """Append a checked sentence; return what to emit, led by the white space before it.

        `sentence` is how it was written: a dropped one still leaves its line break behind.
        """
        if not checked:
            self.gap += "\n" * ("\n" in sentence)
            return ""
        core = checked.strip()
        before = self.gap + checked[: len(checked) - len(checked.lstrip())]
        gap = "\n" * min(2, before.count("\n")) or before[:1]
        piece = gap + core if self.text else core
        self.gap = checked[len(checked.rstrip()) :]
        self.text += piece
        return piece

    def append(self, piece: str) -> AnswerDelta:
        """Add a piece that needs no check; return it as it is emitted."""
        self.text += piece
        return AnswerDelta(piece)


@dataclass(frozen=True, slots=True)
class AnswerLog:
    """What a receipt says beside the answer itself."""

    collection: Collection
    history: tuple[Message, ...]
    system: str
    top_k: int
    preset: PresetName
    think: bool
    sampling: Sampling
    found: Retrieval
    started: float
    retrieval_ms: float
    prompt: Prompt | None = None

    def build_receipt(
        self,
        answer: Answer,
        *,
        now: datetime,
        threshold: float,
        model_fingerprint: str,
        timings_ms: Mapping[str, float],
    ) -> Receipt:
        """Return the receipt of the finished answer."""
        prompt = self.prompt
        return Receipt(
            id=answer.id,
            collection_id=self.collection.id,
            collection=self.collection.name,
            created_at=now,
            question=answer.question,
            query=answer.query,
            language=answer.language,
            history=self.history,
            system=self.system,
            top_k=self.top_k,
            preset=self.preset,
            think=self.think,
            sampling=self.sampling,
            retrieved=mark_passages(self.found.passages),
            prompt_chunks=tuple(passage.chunk.id for passage in prompt.passages) if prompt else (),
            prompt_sha256=hash_messages(prompt.messages) if prompt else "",
            evidence=self.found.evidence,
            evidence_threshold=threshold,
            index_fingerprint=self.collection.fingerprint,
            index_generation=self.collection.generation,
            model=answer.model,
            model_fingerprint=model_fingerprint,
            mode=answer.mode,
            text=answer.text,
            refusal=answer.refusal.reason.value if answer.refusal else None,
            citations=answer.citations,
            timings_ms=timings_ms,
        )


def measure_ms(started: float) -> float:
    """Return the milliseconds since a reading of `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 1)
