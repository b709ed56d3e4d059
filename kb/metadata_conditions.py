"""Conditions on metadata: the operators that knowledge-base clients send along with a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from operator import ge, gt, le, lt
from typing import Literal

Value = str | int | float | None
"""One value of a document's metadata."""

Operand = str | int | float | Sequence[str | int | float] | None
"""What a value is compared with."""


class Operator(StrEnum):
    """Comparisons by the names that clients send."""

    CONTAINS = "contains"
    NOT_CONTAINS = "not contains"
    START_WITH = "start with"
    END_WITH = "end with"
    IS = "is"
    IS_NOT = "is not"
    IN = "in"
    NOT_IN = "not in"
    EMPTY = "empty"
    NOT_EMPTY = "not empty"
    EQUAL = "="
    NOT_EQUAL = "≠"
    GREATER = ">"
    LESS = "<"
    AT_LEAST = "≥"
    AT_MOST = "≤"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Condition:
    """`name operator operand`, for one field of the metadata."""

    name: str
    operator: Operator
    operand: Operand = None


def meets(
    metadata: Mapping[str, Value], conditions: Sequence[Condition], *, logic: Literal["and", "or"] = "and"
) -> bool:
    """Return whether the metadata meets all of the conditions, or one of them; true without conditions.

    A field that is missing is empty. It meets what says that something is not so, and nothing that
    says what it is. Texts compare without regard to case; what is neither a number nor a date meets
    no comparison of numbers or dates.
    """
    if not conditions:
        return True
    results = (_meets_one(metadata.get(item.name), item) for item in conditions)
    return all(results) if logic == "and" else any(results)


def _meets_one(value: Value, condition: Condition) -> bool:
    operator, operand = condition.operator, condition.operand
    is_empty = value is None or value == ""
    if operator is Operator.EMPTY:
        return is_empty
    if operator is Operator.NOT_EMPTY:
        return not is_empty
    if operator in _NEGATIONS:
        return not _meets_one(value, Condition(condition.name, _NEGATIONS[operator], operand))
    if is_empty or operand is None:
        return False
    if operator in _TEXT:
        return any(_TEXT[operator](_fold(value), _fold(item)) for item in _list(operand))
    if operator is Operator.EQUAL:
        return any(_is_equal(value, item) for item in _list(operand))
    read = _read_date if operator in _DATES else _read_number
    left = read(value)
    rights = [read(item) for item in _list(operand)]
    compare = (_DATES | _NUMBERS)[operator]
    return left is not None and any(right is not None and compare(left, right) for right in rights)


_NEGATIONS = {
    Operator.NOT_CONTAINS: Operator.CONTAINS,
    Operator.IS_NOT: Operator.IS,
    Operator.NOT_IN: Operator.IN,
    Operator.NOT_EQUAL: Operator.EQUAL,
}
_TEXT: Mapping[Operator, Callable[[str, str], bool]] = {
    Operator.CONTAINS: lambda value, part: part in value,
    Operator.START_WITH: str.startswith,
    Operator.END_WITH: str.endswith,
    Operator.IS: str.__eq__,
    Operator.IN: str.__eq__,
}
_NUMBERS: dict[Operator, Callable[[float, float], bool]] = {
    Operator.GREATER: gt,
    Operator.LESS: lt,
    Operator.AT_LEAST: ge,
    Operator.AT_MOST: le,
}
_DATES: dict[Operator, Callable[[float, float], bool]] = {
    Operator.BEFORE: lt,
    Operator.AFTER: gt,
}


def _list(operand: Operand) -> Sequence[str | int | float]:
    if operand is None:
        return []
    return [operand] if isinstance(operand, str | int | float) else operand


def _fold(value: Value) -> str:
    return str(value).casefold()


def _is_equal(value: Value, operand: str | float) -> bool:
    left, right = _read_number(value), _read_number(operand)
    return _fold(value) == _fold(operand) if left is None or right is None else left == right


def _read_number(value: Value) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _read_date(value: Value) -> float | None:
    """Return seconds since 1970 of an ISO 8601 date or time, or of such a number; naive ones are UTC."""
    number = _read_number(value)
    if number is not None:
        return number
    try:
        when = datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
