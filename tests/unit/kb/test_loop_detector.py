from __future__ import annotations

import pytest

from kb.adapters.loop_detector import LoopDetector


def loops(text: str, *, size: int = 5) -> bool:
    detector = LoopDetector()
    return any(detector.feed(text[start : start + size]) for start in range(0, len(text), size))


@pytest.mark.parametrize(
    "piece",
    [
        "Check the fan again.\n",
        "检查风扇。",
        "so ",
        "a",
        "1. Stop the pump and wait for the pressure to fall.\n" * 3,
    ],
)
def test_the_same_again_and_again_is_a_loop(piece: str) -> None:
    assert loops("Stop the press first.\n" + piece * (40 + 400 // len(piece)))


@pytest.mark.parametrize(
    "text",
    [
        "Check the fan.\n" * 3,
        "-" * 400,
        "| --- | --- |\n" * 30,
        "".join(f"{number}. Check valve {number}.\n" for number in range(1, 200)),
        "".join(chr(0x4E00 + number) for number in range(3000)),
    ],
)
def test_lists_rules_and_long_texts_are_none(text: str) -> None:
    assert not loops(text)
