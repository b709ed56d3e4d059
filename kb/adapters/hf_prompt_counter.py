"""Token counts with the generator's own tokenizer and chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from kb.adapters.chat_markup import break_known_markup
from kb.adapters.chat_tokenizer import ChatTokenizer
from kb.types import Message

_MAX_SPLITS = 8


class HfPromptCounter:
    """Counts with `tokenizer.json` and the chat template of a model folder.

    `template_options` are variables of the chat template; the runtime must be sent the same.
    """

    def __init__(self, *, path: Path, template_options: Mapping[str, object] | None = None) -> None:
        self._tokenizer = ChatTokenizer(path=path)
        self._options = {"enable_thinking": False} if template_options is None else dict(template_options)

    def count_text(self, text: str) -> int:
        """See `kb.ports.PromptCounter`."""
        return len(self._tokenizer.encode_text(self.neutralise(text)))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """See `kb.ports.PromptCounter`."""
        return len(self._tokenizer.encode_messages(messages, self._options))

    def neutralise(self, text: str) -> str:
        """See `kb.ports.PromptCounter`.

        A space is put after the first character of each control token. Texts must be joined by
        white space afterwards: two halves of a token in two texts are harmless only apart.
        """
        text = self._markup.sub(lambda match: f"{match[0][0]} {match[0][1:]}", break_known_markup(text))
        # Some tokens are matched after normalisation or only at certain places: the tokenizer itself
        # has the last word. A normaliser that drops spaces would undo the split, hence the limit.
        for _ in range(_MAX_SPLITS):
            spans = self._find_control_tokens(text)
            for start, _end in reversed(spans):
                text = f"{text[: start + 1]} {text[start + 1 :]}"
            if not spans:
                return text
        for start, end in reversed(self._find_control_tokens(text)):
            text = f"{text[:start]}?{text[end:]}"
        return text

    @cached_property
    def _markup(self) -> re.Pattern[str]:
        contents = sorted(self._tokenizer.added_tokens.values(), key=len, reverse=True)
        longer = [re.escape(content) for content in contents if len(content) > 1]
        return re.compile("|".join(longer) or r"(?!)")

    def _find_control_tokens(self, text: str) -> list[tuple[int, int]]:
        encoding = self._tokenizer.encode_text(text)
        added = self._tokenizer.added_tokens
        return [
            (start, end)
            for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if index in added and end - start > 1
        ]
