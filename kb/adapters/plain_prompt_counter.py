"""Token counts by rule of thumb, for generators without a tokenizer and for tests."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kb.adapters.chat_markup import break_known_markup
from kb.language import is_cjk
from kb.types import Message

_PIECE = re.compile(r"[^\W_]+|[^\w\s]|_")
_TOKENS_PER_WORD = 1.3
_TOKENS_PER_MESSAGE = 5
_TOKENS_FOR_REPLY = 3


class PlainPromptCounter:
    """Estimates: a Chinese character or a punctuation mark is one token, a word of up to 8 letters 1.3."""

    def count_text(self, text: str) -> int:
        """See `kb.ports.PromptCounter`."""
        marks = sum(map(is_cjk, text))
        words = 0
        for match in _PIECE.finditer("".join(" " if is_cjk(char) else char for char in text)):
            piece = match.group()
            if piece.isalnum():
                words += math.ceil(len(piece) / 8)
            else:
                marks += 1
        return marks + math.ceil(words * _TOKENS_PER_WORD)

    def count_messages(self, messages: Sequence[Message]) -> int:
        """See `kb.ports.PromptCounter`."""
        return _TOKENS_FOR_REPLY + sum(
            _TOKENS_PER_MESSAGE + self.count_text(message.content) for message in messages
        )

    def neutralise(self, text: str) -> str:
        """See `kb.ports.PromptCounter`."""
        return break_known_markup(text)
