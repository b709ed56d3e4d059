"""Builds the prompt from question, passages and history; the wording lies in `prompts/*.txt`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kb.errors import QuestionTooLongError
from kb.ports import PromptCounter
from kb.presets import DEFAULT_PRESET, PresetName
from kb.resources import read_prompt
from kb.tokens import TokenBudget
from kb.types import Message, Passage
from kb.wording import get_sentence

_MOST_NAME_CHARS = 80
_MOST_CONTEXT_CHARS = 300
_HISTORY_SHARE = 4
"""History, like the caller's own instructions, gets at most one part in so many of the free room."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A packed prompt; passage `n` of the text is `passages[n - 1]`."""

    messages: tuple[Message, ...]
    passages: tuple[Passage, ...]
    tokens: int


def build_prompt(
    question: str,
    passages: Sequence[Passage],
    *,
    language: str,
    budget: TokenBudget,
    counter: PromptCounter,
    history: Sequence[Message] = (),
    system: str = "",
    preset: PresetName = DEFAULT_PRESET,
) -> Prompt:
    """Return the prompt with as many passages as fit, best first; `passages` come best first.

    In the prompt they stand by document and page. The oldest turns of `history` go first when room is
    short, and `system` is cut. Raises `QuestionTooLongError` when the question leaves no room for one
    passage.
    """

    def render(chosen: Sequence[Passage], turns: Sequence[Message], extra: str) -> tuple[Message, ...]:
        return render_messages(
            question,
            arrange(chosen),
            language=language,
            counter=counter,
            history=turns,
            system=extra,
            preset=preset,
        )

    bare_tokens = counter.count_messages(render((), (), ""))
    free = budget.prompt_tokens - bare_tokens
    if free <= 0:
        raise _too_long(question, budget=budget, bare_tokens=bare_tokens, counter=counter)
    part = TokenBudget(context_tokens=bare_tokens + free // _HISTORY_SHARE, answer_tokens=0)
    extra = part.trim_text(system.strip(), count=lambda text: counter.count_messages(render((), (), text)))
    part = TokenBudget(
        context_tokens=counter.count_messages(render((), (), extra)) + free // _HISTORY_SHARE, answer_tokens=0
    )
    turns = part.trim_history(history, count=lambda kept: counter.count_messages(render((), kept, extra)))

    for kept_turns, kept_extra in ((turns, extra), ([], extra), ([], "")):
        chosen = budget.pack(
            passages,
            count=lambda chosen, t=kept_turns, e=kept_extra: counter.count_messages(render(chosen, t, e)),  # type: ignore[misc]
        )
        if chosen:
            messages = render(chosen, kept_turns, kept_extra)
            return Prompt(
                messages=messages, passages=tuple(arrange(chosen)), tokens=counter.count_messages(messages)
            )
    raise _too_long(question, budget=budget, bare_tokens=bare_tokens, counter=counter)


def arrange(passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages by document and place; documents in the order of their best passage."""
    best: dict[str, int] = {}
    for passage in sorted(passages, key=lambda passage: passage.rank):
        best.setdefault(passage.chunk.document_id, passage.rank)
    return sorted(
        passages,
        key=lambda passage: (best[passage.chunk.document_id], passage.chunk.page_start, passage.chunk.index),
    )


def render_messages(
    question: str,
    passages: Sequence[Passage],
    *,
    language: str,
    counter: PromptCounter,
    history: Sequence[Message] = (),
    system: str = "",
    preset: PresetName = DEFAULT_PRESET,
) -> tuple[Message, ...]:
    """Return the messages with the passages numbered from 1 as given; foreign text can't act as markup."""
    rules = read_prompt(f"system.{preset}.{language}").format(refusal=get_sentence("not_stated", language))
    if system:
        rules = f"{rules}\n{counter.neutralise(system)}"
    frame = read_prompt(f"passage.{language}")
    shown = "\n\n".join(
        frame.format(
            number=number,
            document=_clip(counter.neutralise(passage.document_name), _MOST_NAME_CHARS),
            page=_format_pages(passage),
            text=counter.neutralise(_format_text(passage)),
        )
        for number, passage in enumerate(passages, start=1)
    )
    asked = read_prompt(f"question.{language}").format(passages=shown, question=counter.neutralise(question))
    return (
        Message("system", rules),
        *(Message(turn.role, counter.neutralise(turn.content)) for turn in history if turn.role != "system"),
        Message("user", asked),
    )


def _format_pages(passage: Passage) -> str:
    first, last = passage.chunk.page_start, passage.chunk.page_end
    return str(first) if first == last else f"{first}-{last}"


def _format_text(passage: Passage) -> str:
    context = _clip(passage.chunk.context, _MOST_CONTEXT_CHARS)
    return f"{context}\n{passage.chunk.text}" if context else passage.chunk.text


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _too_long(
    question: str, *, budget: TokenBudget, bare_tokens: int, counter: PromptCounter
) -> QuestionTooLongError:
    tokens = counter.count_text(question)
    return QuestionTooLongError(
        tokens=tokens, limit_tokens=max(0, budget.prompt_tokens - bare_tokens + tokens - 1)
    )
