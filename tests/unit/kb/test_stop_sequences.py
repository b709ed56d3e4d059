from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.adapters.stop_sequences import StopFilter


def play(sequences: list[str], pieces: list[str]) -> tuple[str, bool]:
    stop = StopFilter(sequences)
    shown = ""
    for piece in pieces:
        shown += stop.feed(piece)
        if stop.stopped:
            return shown, True
    return shown + stop.flush(), False


@pytest.mark.parametrize(
    ("sequences", "pieces", "expected"),
    [
        (["\n\n"], ["a\n", "\nb"], ("a", True)),
        (["END"], ["xE", "N", "x"], ("xENx", False)),
        (["END"], ["xE", "N", "D", "y"], ("x", True)),
        (["问题：", "答"], ["好。问", "题：为", "什么"], ("好。", True)),
        ([], ["a", "b"], ("ab", False)),
        ([""], ["a"], ("a", False)),
        (["ab", "b"], ["xab"], ("x", True)),
    ],
)
def test_text_ends_before_the_first_stop_sequence(
    sequences: list[str], pieces: list[str], expected: tuple[str, bool]
) -> None:
    assert play(sequences, pieces) == expected


@given(
    pieces=st.lists(st.text(alphabet="ab\n", max_size=4)),
    sequences=st.lists(st.text(alphabet="ab\n", min_size=1, max_size=3), max_size=3),
)
def test_pieces_give_the_same_as_the_whole_text(pieces: list[str], sequences: list[str]) -> None:
    text = "".join(pieces)
    # A sequence that is complete first wins, as it would in a stream; so compare character by character.
    expected, stopped = play(sequences, list(text))

    shown, ended = play(sequences, pieces)

    assert ended == stopped == any(sequence in text for sequence in sequences)
    assert expected.startswith(shown) or shown.startswith(expected)
    assert not any(sequence in shown for sequence in sequences)
