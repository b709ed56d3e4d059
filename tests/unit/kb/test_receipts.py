from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kb.receipts import ReceiptBook, compare, hash_messages, mark_passages
from kb.types import AnswerFinished, Message, RefusalReason
from tests.unit.fakes import FakeCatalog
from tests.unit.kb.stand_ins import COLLECTION, Script, make_passage
from tests.unit.kb.test_answering import QUESTION, build_answerer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class _Days:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def _book(catalog: FakeCatalog, clock: _Days, *, enabled: bool = True) -> ReceiptBook:
    return ReceiptBook(catalog, enabled=enabled, keep_days=30, clock=clock)


def _ask(book: ReceiptBook, generator: Script, question: str = QUESTION, **options: Any) -> str:
    answerer = build_answerer(generator, receipts=book, fingerprint_model=lambda: "model.bin:7:abc")
    last = list(answerer.stream(COLLECTION, question, **options))[-1]
    assert isinstance(last, AnswerFinished)
    return last.answer.id


def test_a_receipt_says_what_an_answer_was_made_from() -> None:
    book = _book(FakeCatalog(), _Days())
    generator = Script("回油滤芯每 3 个月更换一次。[1]")

    receipt = book.get(_ask(book, generator, preset="fault"))

    assert (receipt.question, receipt.query, receipt.text) == (
        QUESTION,
        QUESTION,
        "回油滤芯每 3 个月更换一次[1]。",
    )
    assert receipt.prompt_sha256 == hash_messages(generator.requests[0].messages)
    assert set(receipt.prompt_chunks) <= {mark.chunk_id for mark in receipt.retrieved}
    assert receipt.prompt_chunks
    assert all(len(mark.sha256) == 64 for mark in receipt.retrieved)
    assert (receipt.model, receipt.model_fingerprint) == ("script-generated", "model.bin:7:abc")
    assert (receipt.preset, receipt.sampling.temperature) == ("fault", 0.3)
    assert set(receipt.timings_ms) == {"retrieval", "first_text", "total"}
    assert receipt.citations[0].quote.startswith("回油滤芯每 3 个月更换一次")
    assert receipt.created_at == NOW


def test_a_refusal_has_a_receipt_without_a_prompt() -> None:
    book = _book(FakeCatalog(), _Days())

    receipt = book.get(_ask(book, Script("x"), "法国现任总统是谁？"))

    assert receipt.refusal == RefusalReason.BELOW_THRESHOLD
    assert (receipt.prompt_sha256, receipt.prompt_chunks, receipt.model_fingerprint) == ("", (), "")


def test_an_answer_that_is_broken_off_leaves_no_receipt() -> None:
    catalog = FakeCatalog()
    answerer = build_answerer(Script("回油滤芯每 3 个月更换一次。[1]"), receipts=_book(catalog, _Days()))

    events = answerer.stream(COLLECTION, QUESTION)
    next(events)
    events.close()  # type: ignore[attr-defined]

    assert catalog.receipts == {}


def test_nothing_is_kept_when_receipts_are_switched_off() -> None:
    catalog = FakeCatalog()

    _ask(_book(catalog, _Days(), enabled=False), Script("回油滤芯每 3 个月更换一次。[1]"))

    assert catalog.receipts == {}


def test_an_answer_is_given_even_if_its_receipt_is_lost() -> None:
    catalog = FakeCatalog()
    catalog.down = True

    assert _ask(_book(catalog, _Days()), Script("回油滤芯每 3 个月更换一次。[1]")).startswith("ans_")


@pytest.mark.parametrize(("days", "kept"), [(29, 1), (31, 0)])
def test_old_receipts_are_purged(days: int, kept: int) -> None:
    catalog, clock = FakeCatalog(), _Days()
    book = _book(catalog, clock)
    _ask(book, Script("回油滤芯每 3 个月更换一次。[1]"))
    clock.now = NOW + timedelta(days=days)

    assert book.purge() == 1 - kept
    assert len(catalog.receipts) == kept


def test_a_comparison_names_what_differs() -> None:
    book = _book(FakeCatalog(), _Days())
    before = book.get(_ask(book, Script("回油滤芯每 3 个月更换一次。[1]")))
    first, *rest = before.retrieved
    other = mark_passages([make_passage("新的一段。", chunk_id="new")])
    after = replace(
        before,
        text="回油滤芯每 6 个月更换一次。[1]",
        model="other",
        retrieved=(*reversed(rest), replace(first, sha256="0" * 64), *other),
    )

    replay = compare(before, after)

    assert replay.added == ("new",)
    assert replay.removed == ()
    assert replay.changed == (first.chunk_id,)
    assert replay.reordered
    assert replay.differences == ("model", "text")
    assert compare(after, before).removed == ("new",)


def test_equal_receipts_do_not_differ() -> None:
    book = _book(FakeCatalog(), _Days())
    one = book.get(_ask(book, Script("回油滤芯每 3 个月更换一次。[1]")))
    other = book.get(_ask(book, Script("回油滤芯每 3 个月更换一次。[1]")))

    replay = compare(one, other)

    assert one.id != other.id
    assert (replay.added, replay.removed, replay.changed, replay.differences) == ((), (), (), ())
    assert not replay.reordered


def test_a_follow_up_is_searched_for_with_the_earlier_code() -> None:
    book = _book(FakeCatalog(), _Days())
    history = (Message("user", "E-0471 怎么处理？"), Message("assistant", "补充氮气。"))

    completed = book.get(
        _ask(book, Script("报警 E-0471 还有别的原因吗？"), "还有别的原因吗", history=history)
    )
    carried = book.get(_ask(book, Script("随便说说"), "还有别的原因吗", history=history))
    standing = book.get(_ask(book, Script("x"), QUESTION, history=history))

    assert completed.query == "报警 E-0471 还有别的原因吗？"
    assert carried.query == "E-0471 还有别的原因吗"
    assert (carried.question, carried.history) == ("还有别的原因吗", history)
    assert standing.query == QUESTION
