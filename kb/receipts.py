"""Receipts of answers: what each was made from, and what would change today."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from kb.errors import BackendError
from kb.logs import describe_exception
from kb.ports import ReceiptStore
from kb.types import Message, Passage, PassageMark, Receipt

_log = structlog.get_logger("kb.receipts")


class ReceiptBook:
    """Keeps the receipts of answers for some days. May be used from several threads at once.

    One that is not `enabled` keeps no new ones; those from before can still be read and deleted.
    """

    def __init__(
        self, store: ReceiptStore, *, enabled: bool, keep_days: float, clock: Callable[[], datetime]
    ) -> None:
        self.enabled = enabled
        self._store = store
        self._keep = timedelta(days=keep_days)
        self._clock = clock

    def now(self) -> datetime:
        """Return the time at which a receipt is written."""
        return self._clock()

    def keep(self, receipt: Receipt) -> None:
        """Store the receipt; an answer doesn't fail because its receipt can't be kept."""
        if not self.enabled:
            return
        try:
            self._store.save_receipt(receipt)
        except BackendError as error:
            _log.warning("receipt_lost", answer=receipt.id, exception=describe_exception(error))

    def get(self, answer_id: str) -> Receipt:
        """Return the receipt; raises `AnswerNotFoundError`."""
        return self._store.get_receipt(answer_id)

    def delete(self, answer_id: str) -> None:
        """Delete the receipt; raises `AnswerNotFoundError`."""
        self._store.delete_receipt(answer_id)

    def purge(self, *, older_than: timedelta | None = None) -> int:
        """Delete receipts that are older, by default than they are kept; return how many."""
        age = self._keep if older_than is None else older_than
        return self._store.delete_receipts(before=self._clock() - age)


@dataclass(frozen=True, slots=True)
class Replay:
    """Two receipts of one question, and what differs; the lists hold chunk ids."""

    before: Receipt
    after: Receipt
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    reordered: bool
    differences: tuple[str, ...]


def compare(before: Receipt, after: Receipt) -> Replay:
    """Return what differs: passages by id and content, and the names of unequal fields."""
    old = {mark.chunk_id: mark for mark in before.retrieved}
    new = {mark.chunk_id: mark for mark in after.retrieved}
    fields = (
        "query",
        "evidence",
        "prompt_sha256",
        "model",
        "model_fingerprint",
        "index_fingerprint",
        "index_generation",
        "mode",
        "refusal",
        "text",
    )
    both = [mark.chunk_id for mark in before.retrieved if mark.chunk_id in new]
    return Replay(
        before=before,
        after=after,
        added=tuple(chunk_id for chunk_id in new if chunk_id not in old),
        removed=tuple(chunk_id for chunk_id in old if chunk_id not in new),
        changed=tuple(chunk_id for chunk_id in both if old[chunk_id].sha256 != new[chunk_id].sha256),
        reordered=both != [mark.chunk_id for mark in after.retrieved if mark.chunk_id in old],
        differences=tuple(name for name in fields if getattr(before, name) != getattr(after, name)),
    )


def mark_passages(passages: Sequence[Passage]) -> tuple[PassageMark, ...]:
    """Return what identifies each passage and its content."""
    return tuple(
        PassageMark(
            chunk_id=passage.chunk.id,
            sha256=hashlib.sha256(passage.chunk.indexed_text.encode()).hexdigest(),
            document_id=passage.chunk.document_id,
            document_name=passage.document_name,
            generation=passage.chunk.generation,
            page_number=passage.chunk.page_start,
            score=passage.score,
        )
        for passage in passages
    )


def hash_messages(messages: Sequence[Message]) -> str:
    """Return the SHA-256 of a prompt."""
    content = json.dumps([[message.role, message.content] for message in messages], ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()
