"""Receipts of answers, each a JSON document with what it is found and purged by."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from pydantic import TypeAdapter

from kb.adapters.sql_catalog_rows import clean_text
from kb.adapters.sql_tables import receipts
from kb.errors import AnswerNotFoundError
from kb.types import Receipt

_SHAPE = TypeAdapter(Receipt)


def save_receipt(c: sa.Connection, receipt: Receipt) -> None:
    """Insert the receipt; one that is there already is left as it is."""
    if c.scalar(sa.select(receipts.c.id).where(receipts.c.id == receipt.id)) is None:
        c.execute(
            sa.insert(receipts).values(
                id=receipt.id,
                collection_id=receipt.collection_id,
                created_at=receipt.created_at,
                body=_clean(_SHAPE.dump_python(receipt, mode="json")),
            )
        )


def get_receipt(c: sa.Connection, answer_id: str) -> Receipt:
    """Select by the answer's id."""
    body = c.scalar(sa.select(receipts.c.body).where(receipts.c.id == clean_text(answer_id)))
    if body is None:
        raise AnswerNotFoundError(answer_id)
    return _SHAPE.validate_python(body)


def delete_receipt(c: sa.Connection, answer_id: str) -> None:
    """Delete one."""
    if c.execute(sa.delete(receipts).where(receipts.c.id == clean_text(answer_id))).rowcount == 0:
        raise AnswerNotFoundError(answer_id)


def delete_receipts(c: sa.Connection, *, before: datetime) -> int:
    """Delete those written earlier."""
    return c.execute(sa.delete(receipts).where(receipts.c.created_at < before)).rowcount


def _clean(value: object) -> object:
    """Return the value with texts that every database stores."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return value
