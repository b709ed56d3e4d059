"""Has a question that leans on earlier turns completed by the model, or by carrying over codes and words."""

from __future__ import annotations

from collections.abc import Sequence

from kb.errors import KbError
from kb.follow_ups import carry_over, is_faithful, leans_on_history
from kb.language import detect_language
from kb.ports import Generator, PromptCounter
from kb.resources import read_prompt
from kb.types import GenerationDelta, GenerationRequest, Message, Sampling

_MOST_TOKENS = 64
_MOST_TURNS = 4
_MOST_TURN_CHARS = 300


class QuestionCompleter:
    """Question and earlier turns to a question that stands by itself."""

    def __init__(self, *, generator: Generator, counter: PromptCounter) -> None:
        self._generator = generator
        self._counter = counter

    def complete(self, question: str, history: Sequence[Message]) -> str:
        """Return the question as it should be searched for; unaltered if it stands by itself.

        What the model writes counts only if it keeps to the codes and numbers that were said.
        """
        if not leans_on_history(question, history):
            return question
        if self._generator.mode == "generated":
            written = self._ask_model(question, history)
            if is_faithful(written, question, history):
                return written
        return carry_over(question, history)

    def _ask_model(self, question: str, history: Sequence[Message]) -> str:
        language = detect_language(question)
        turns = [turn for turn in history if turn.role in ("user", "assistant")][-_MOST_TURNS:]
        request = GenerationRequest(
            messages=(
                Message("system", read_prompt(f"rewrite.{language}")),
                *(
                    Message(turn.role, self._counter.neutralise(turn.content[:_MOST_TURN_CHARS]))
                    for turn in turns
                ),
                Message("user", self._counter.neutralise(question)),
            ),
            question=question,
            passages=(),
            language=language,
            sampling=Sampling(max_tokens=_MOST_TOKENS),
        )
        try:
            events = self._generator.stream(request)
            return "".join(event.text for event in events if isinstance(event, GenerationDelta)).strip()
        except KbError:
            return ""  # without the model the words are carried over
