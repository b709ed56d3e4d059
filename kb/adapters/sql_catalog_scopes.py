"""Statements of the catalog on which documents a search looks at; each runs in its caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from kb.adapters.sql_catalog_garbage import document_key
from kb.adapters.sql_catalog_rows import Row
from kb.adapters.sql_tables import documents
from kb.types import Scope


def list_visible_keys(c: sa.Connection, collection_id: str, scope: Scope) -> list[str]:
    """Select what is visible and in the scope; attachments are where what they came with is."""
    columns = ("id", "name", "parent_id", "tags", "created_at", "visible_generation")
    query = sa.select(*(documents.c[name] for name in columns)).where(
        documents.c.collection_id == collection_id
    )
    rows = {row["id"]: row for row in c.execute(query).mappings()}
    return sorted(
        document_key(row["id"], row["visible_generation"])
        for row in rows.values()
        if row["visible_generation"] is not None and _is_in(row, rows, scope)
    )


def _is_in(row: Row, rows: Mapping[str, Row], scope: Scope) -> bool:
    line = [row]
    while (parent := rows.get(line[-1]["parent_id"])) is not None and parent not in line:
        line.append(parent)
    called = {name for item in line for name in (item["id"], item["name"])}
    tags = {tag for item in line for tag in item["tags"] or ()}
    uploaded_at = row["created_at"]
    return (
        (not scope.documents or not called.isdisjoint(scope.documents))
        and tags.issuperset(scope.tags)
        and (scope.uploaded_from is None or uploaded_at >= scope.uploaded_from)
        and (scope.uploaded_before is None or uploaded_at < scope.uploaded_before)
    )
