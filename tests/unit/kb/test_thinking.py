from __future__ import annotations

import pytest

from kb.thinking import ThoughtFilter


def _run(text: str, *, expected: bool, size: int) -> str:
    thoughts = ThoughtFilter(expected=expected)
    pieces = [thoughts.feed(text[start : start + size]) for start in range(0, len(text), size)]
    return "".join([*pieces, thoughts.flush()])


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "expected", "answer"),
    [
        ("<think>a. b</think>\n\nClean it.", True, "Clean it."),
        ("opened by the template</think>Clean it.", True, "Clean it."),
        ("Clean it.", True, "Clean it."),
        ("\n<think>\n\n</think>\n\nClean it.", False, "Clean it."),
        ("Clean it. <think> is a tag.", False, "Clean it. <think> is a tag."),
        ("<think>never ends", True, ""),
        ("<think>never ends", False, ""),
        ("<", False, "<"),
        ("", True, ""),
    ],
)
def test_only_the_answer_is_left(text: str, expected: bool, answer: str, size: int) -> None:
    assert _run(text, expected=expected, size=size) == answer


def test_text_streams_as_soon_as_it_cannot_be_a_thought() -> None:
    thoughts = ThoughtFilter(expected=False)

    assert thoughts.feed("<th") == ""
    assert thoughts.feed("e pump") == "<the pump"
    assert thoughts.feed(" runs") == " runs"
