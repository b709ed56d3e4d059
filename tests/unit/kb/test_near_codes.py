from __future__ import annotations

import pytest

from kb.near_codes import find_near_codes, list_look_alikes

KNOWN = ["E0401", "E0461", "E0471", "E0473", "F30001", "SRVO050", "0X0F4A", "AL24"]


@pytest.mark.parametrize(
    ("code", "nearest"),
    [("EO471", "E0471"), ("E047I", "E0471"), ("F3OOO1", "F30001"), ("OX0F4A", "0X0F4A"), ("E0472", "E0471")],
)
def test_look_alikes_and_near_numbers_come_first(code: str, nearest: str) -> None:
    assert find_near_codes(code, KNOWN, limit=3)[0] == nearest


def test_a_look_alike_goes_before_a_nearer_number() -> None:
    assert find_near_codes("EO473", ["E0472", "E0474", "E0473"], limit=2) == ["E0473", "E0472"]


def test_what_is_not_like_it_is_not_named() -> None:
    assert find_near_codes("SRVO062", ["E0401", "F30001"], limit=5) == []
    assert find_near_codes("E1", ["E2", "P1", "E100"], limit=5) == ["E2"]


def test_the_code_itself_is_no_suggestion_and_the_limit_holds() -> None:
    found = find_near_codes("E0471", KNOWN, limit=2)

    assert "E0471" not in found
    assert len(found) == 2


def test_look_alikes_of_a_code_are_listed_with_itself() -> None:
    assert set(list_look_alikes("EO1")) == {"EO1", "E01", "EOI", "E0I", "EOL", "E0L"}
    assert list_look_alikes("A2") == ["A2"]
    assert list_look_alikes("0" * 20) == []
