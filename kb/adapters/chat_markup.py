"""Markup of chat formats inside ordinary text, made harmless without removing a character."""

from __future__ import annotations

import re

# Control markup of the families that people run: ChatML and Llama 3 (`<|name|>`), DeepSeek (full-width
# bars), Gemma turns, Llama 2 instructions, sentence marks, and the tags of reasoning and tool calls.
_KNOWN_MARKUP = re.compile(
    r"<[|｜][^|｜<>\s]{1,64}[|｜]>"
    r"|</?(?:think|tool_call|tool_response|tools|start_of_turn|end_of_turn|bos|eos|pad|unk|s)>"
    r"|\[/?INST\]"
    r"|<</?SYS>>"
)


def break_known_markup(text: str) -> str:
    """Return `text` with a space after the first character of each piece of known chat markup.

    Nothing is taken away, so that no markup can come together from what is left, and a second
    call changes nothing.
    """
    return _KNOWN_MARKUP.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def replace_lone_surrogates(text: str) -> str:
    """Return `text` as valid Unicode; what can't be encoded becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
