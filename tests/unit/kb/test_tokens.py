from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kb.tokens import TokenBudget, cut_chunk
from kb.types import Chunk, Message, Passage, Span
from tests.unit.kb.stand_ins import make_chunk, make_passage

_TEXTS = st.lists(st.text(alphabet="油压ab .。\n", min_size=1, max_size=200), min_size=1, max_size=6)


def _count(passages: Sequence[Passage]) -> int:
    return 10 + sum(4 + len(passage.chunk.context) + len(passage.chunk.text) for passage in passages)


@given(_TEXTS, st.integers(min_value=0, max_value=400), st.integers(min_value=0, max_value=100))
def test_what_is_packed_never_exceeds_the_budget(texts: list[str], context: int, answer: int) -> None:
    budget = TokenBudget(context_tokens=context, answer_tokens=answer)
    passages = [make_passage(text, rank=rank, context="标题" * rank) for rank, text in enumerate(texts)]

    packed = budget.pack(passages, count=_count)

    assert not packed or _count(packed) <= budget.prompt_tokens
    originals = {passage.chunk.id: passage.chunk.text for passage in passages}
    assert all(originals[passage.chunk.id].startswith(passage.chunk.text) for passage in packed)


def test_a_passage_that_does_not_fit_gives_way_to_a_shorter_one() -> None:
    budget = TokenBudget(context_tokens=60, answer_tokens=0)
    passages = [make_passage(text, rank=rank) for rank, text in enumerate(["a" * 20, "b" * 90, "c" * 10])]

    packed = budget.pack(passages, count=_count)

    assert [passage.rank for passage in packed] == [0, 2]


def test_the_best_passage_is_cut_at_a_sentence_when_nothing_fits() -> None:
    budget = TokenBudget(context_tokens=70, answer_tokens=0)
    text = "检查油位是否在标记之间，并记录读数。" * 2 + "更换滤芯，并排气。" * 9

    packed = budget.pack([make_passage(text)], count=_count)

    assert packed[0].chunk.text.endswith("。")
    assert text.startswith(packed[0].chunk.text)
    assert packed[0].chunk.spans == (Span(1, 0, len(packed[0].chunk.text)),)


def test_the_context_is_given_up_before_the_passage() -> None:
    budget = TokenBudget(context_tokens=80, answer_tokens=0)

    packed = budget.pack([make_passage("a" * 60, context="h" * 60)], count=_count)

    assert packed[0].chunk.context == ""
    assert packed[0].chunk.text == "a" * 60


def test_no_room_at_all_packs_nothing() -> None:
    budget = TokenBudget(context_tokens=12, answer_tokens=5)

    assert budget.pack([make_passage("a" * 60)], count=_count) == []
    assert budget.pack([], count=_count) == []


def test_cutting_keeps_spans_and_rows_in_step_with_the_text() -> None:
    chunk = Chunk(
        id="c",
        document_id="d",
        generation=1,
        index=0,
        text="row one\nrow two",
        spans=(Span(1, 5, 12), Span(2, 0, 7)),
        records=({"a": "row one"}, {"a": "row two"}),
    )

    assert cut_chunk(chunk, 15) == chunk
    assert cut_chunk(chunk, 10).text == "row one\nro"
    assert cut_chunk(chunk, 10).spans == (Span(1, 5, 12), Span(2, 0, 2))
    assert cut_chunk(chunk, 10).records == ({"a": "row one"},)
    assert cut_chunk(chunk, 8).text == "row one"
    assert cut_chunk(make_chunk("abc"), 3).text == "abc"


def test_history_loses_its_oldest_turns_and_begins_with_the_user() -> None:
    budget = TokenBudget(context_tokens=30, answer_tokens=0)
    history = [Message(role, text * 10) for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    everything = TokenBudget(context_tokens=100, answer_tokens=0)

    def count(turns: Sequence[Message]) -> int:
        return sum(len(turn.content) for turn in turns)

    assert budget.trim_history(history, count=count) == history
    assert everything.trim_history(history[1:], count=count) == history[2:]
    assert TokenBudget(context_tokens=25, answer_tokens=0).trim_history(history, count=count) == history[2:]
    assert TokenBudget(context_tokens=5, answer_tokens=0).trim_history(history, count=count) == []


@given(st.text(max_size=50), st.integers(min_value=0, max_value=60))
def test_a_trimmed_text_is_the_longest_beginning_that_fits(text: str, limit: int) -> None:
    trimmed = TokenBudget(context_tokens=limit, answer_tokens=0).trim_text(text, count=len)

    assert trimmed == text[:limit]
