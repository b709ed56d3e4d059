from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kb.adapters.thinking_filter import ThinkingFilter


def run(pieces: list[str], *, begins_inside: bool = False) -> tuple[str, str]:
    parted = ThinkingFilter(begins_inside=begins_inside)
    shown = "".join(parted.feed(piece) for piece in pieces) + parted.flush()
    return shown, parted.reasoning


def test_reasoning_goes_apart() -> None:
    assert run(["<think>a</think>\n\nb"]) == ("b", "a")


def test_an_opening_mark_in_the_prompt_needs_only_the_closing_one() -> None:
    assert run(["a</think>b"], begins_inside=True) == ("b", "a")
    assert run(["<think>a</think>b"], begins_inside=True) == ("b", "a")


def test_a_text_without_marks_is_all_answer() -> None:
    assert run(["a < b"], begins_inside=True) == ("a < b", "")
    assert run(["  a < b <th"]) == ("  a < b <th", "")


def test_reasoning_without_an_end_never_leaks() -> None:
    assert run(["<think>on and on"]) == ("", "on and on")
    assert run(["<think>on and on"], begins_inside=True) == ("", "on and on")


def test_a_stray_closing_mark_is_dropped() -> None:
    assert run(["a", "</thi", "nk>b"]) == ("ab", "")


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "x", "<", "<thin", "/", "\n"]), max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_pieces_make_no_difference_and_no_mark_leaks(parts: list[str], size: int, inside: bool) -> None:
    text = "".join(parts)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]

    shown, reasoning = run(pieces, begins_inside=inside)

    assert "<think>" not in shown
    assert "</think>" not in shown
    assert (shown, reasoning) == run([text], begins_inside=inside)


def test_reasoning_that_was_cut_is_no_answer() -> None:
    parts = ThinkingFilter(begins_inside=True)

    assert parts.feed("First I look at") == ""
    assert parts.flush(cut=True) == ""
    assert parts.reasoning == "First I look at"
