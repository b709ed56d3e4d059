from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.metadata_conditions import Condition, Operator, Value, meets

PRESS: dict[str, Value] = {
    "document_name": "压机手册_V2.PDF",
    "language": "zh",
    "page": 12,
    "author": "",
    "created_at": "2026-03-01T08:30:00+00:00",
    "revision": "2.50",
}


@pytest.mark.parametrize(
    ("name", "operator", "operand", "expected"),
    [
        ("document_name", "contains", "手册", True),
        ("document_name", "contains", "v2.pdf", True),
        ("document_name", "contains", "泵", False),
        ("document_name", "not contains", "泵", True),
        ("document_name", "start with", "压机", True),
        ("document_name", "start with", "手册", False),
        ("document_name", "end with", ".pdf", True),
        ("language", "is", "ZH", True),
        ("language", "is", "en", False),
        ("language", "is not", "en", True),
        ("language", "in", ["en", "zh"], True),
        ("language", "in", ["en"], False),
        ("language", "in", "zh", True),
        ("language", "not in", ["en", "de"], True),
        ("author", "empty", None, True),
        ("missing", "empty", None, True),
        ("page", "empty", None, False),
        ("author", "not empty", None, False),
        ("page", "not empty", None, True),
        ("page", "=", 12, True),
        ("page", "=", "12.0", True),
        ("revision", "=", 2.5, True),
        ("language", "=", "zh", True),
        ("page", "≠", 13, True),
        ("page", "≠", 12, False),
        ("page", ">", 11, True),
        ("page", ">", 12, False),
        ("page", "≥", "12", True),
        ("page", "<", 12.5, True),
        ("page", "≤", 11, False),
        ("language", ">", 1, False),
        ("created_at", "before", "2026-03-02", True),
        ("created_at", "after", "2026-03-01T08:30:00+00:00", False),
        ("created_at", "after", "2026-03-01T09:29:00+01:00", True),
        ("created_at", "before", 1800000000, True),
        ("created_at", "before", "soon", False),
        ("missing", "is", "x", False),
        ("missing", "is not", "x", True),
        ("missing", "not in", ["x"], True),
        ("missing", "<", 5, False),
        ("page", "=", None, False),
    ],
)
def test_each_operator(name: str, operator: str, operand: Any, expected: bool) -> None:
    assert meets(PRESS, [Condition(name, Operator(operator), operand)]) is expected


@pytest.mark.parametrize(("logic", "expected"), [("and", False), ("or", True)])
def test_conditions_are_joined(logic: Literal["and", "or"], expected: bool) -> None:
    conditions = [Condition("language", Operator.IS, "zh"), Condition("page", Operator.GREATER, 99)]

    assert meets(PRESS, conditions, logic=logic) is expected
    assert meets(PRESS, [], logic=logic)


VALUES = st.one_of(st.none(), st.text(), st.integers(), st.floats())


@given(VALUES, st.sampled_from(Operator), st.one_of(VALUES, st.lists(st.one_of(st.text(), st.floats()))))
def test_no_value_breaks_a_condition_and_a_negation_is_its_opposite(
    value: Value, operator: Operator, operand: Any
) -> None:
    result = meets({"field": value}, [Condition("field", operator, operand)])

    opposite = {"is not": "is", "not in": "in", "not contains": "contains", "≠": "=", "not empty": "empty"}
    if operator in opposite:
        plain = Condition("field", Operator(opposite[operator]), operand)
        assert result is not meets({"field": value}, [plain])
