from __future__ import annotations

import pytest

from kb.safety import list_unsaid_precautions


@pytest.mark.parametrize(
    ("quote", "said", "unsaid"),
    [
        (
            "F30021 | Earth fault | Lock out; disconnect U V W; measure at 500 V",
            "F30021 is an earth fault: measure at 500 V.",
            ["Lock out", "disconnect U V W"],
        ),
        ("先断电并上锁，再测量绝缘", "测量绝缘。", ["先断电并上锁"]),
        ("先断电并上锁；再测量绝缘", "先断电、上锁，再测量绝缘。", []),
        ("使用干粉灭火器；禁止用水", "用干粉灭火器。", ["禁止用水"]),
        ("Clean the cooler. Check the fan", "Clean the cooler.", []),
    ],
)
def test_precautions_that_were_left_out_are_found(quote: str, said: str, unsaid: list[str]) -> None:
    assert list_unsaid_precautions(quote, said=said) == unsaid
