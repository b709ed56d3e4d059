"""The catalog's tables. A change here needs a migration; a test compares the two."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Sorted by code point on both databases, whatever the locale of a PostgreSQL server.
SortedText = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """Aware UTC times; SQLite has no type for them and keeps them naive."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse naive times: they would be read in the server's time zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        in_utc = value.astimezone(UTC)
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(
        self,
        value: datetime | None,
        dialect: Dialect,  # noqa: ARG002 - the base class's signature
    ) -> datetime | None:
        """Return the time in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


collections = sa.Table(
    "collections",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", SortedText, nullable=False, unique=True),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("dimension", sa.Integer, nullable=False),
    # Counts up with every registration and retry, so that index keys are never used twice.
    sa.Column("last_generation", sa.Integer, nullable=False),
    sa.Column("calibration", sa.JSON(none_as_null=True)),
)

documents = sa.Table(
    "documents",
    metadata,
    sa.Column("id", SortedText, primary_key=True),
    sa.Column("collection_id", sa.ForeignKey("collections.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", SortedText, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False, index=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    # The generation that may be retrieved; NULL until the first activation.
    sa.Column("visible_generation", sa.Integer),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.Column("media_type", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("source_metadata", sa.JSON, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("pages_done", sa.Integer, nullable=False),
    sa.Column("page_count", sa.Integer, nullable=False),
    sa.Column("chunk_count", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("warnings", sa.JSON, nullable=False),
    # Of what is there as an attachment only: the one of its parents that it is named after.
    sa.Column("parent_id", sa.Text),
    sa.Column("tags", sa.JSON(none_as_null=True)),
    sa.Index(None, "collection_id", "name", "id"),
)

# What is attached to what, uploads that are attached as well included. A row of an earlier generation
# of the parent stands for an attachment that stays until its new version is ready.
attachments = sa.Table(
    "attachments",
    metadata,
    sa.Column("parent_id", sa.ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("child_id", sa.ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True, index=True),
    sa.Column("parent_generation", sa.Integer, nullable=False),
    # The child's own, without the parent's.
    sa.Column("name", sa.Text, nullable=False),
)

pages = sa.Table(
    "pages",
    metadata,
    sa.Column("document_id", sa.ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("page_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("width", sa.Double),
    sa.Column("height", sa.Double),
    sa.Column("blocks", sa.JSON, nullable=False),
    sa.Column("lines", sa.JSON, nullable=False),
    sa.Column("quality", sa.JSON, nullable=False),
)

chunks = sa.Table(
    "chunks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("document_id", sa.ForeignKey("documents.id", ondelete="CASCADE"), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("context", sa.Text, nullable=False),
    sa.Column("heading_path", sa.JSON, nullable=False),
    sa.Column("spans", sa.JSON, nullable=False),
    sa.Column("records", sa.JSON, nullable=False),
    sa.Column("language", sa.Text, nullable=False),
    sa.Column("token_count", sa.Integer, nullable=False),
    sa.Index(None, "document_id", "generation", "position"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", SortedText, primary_key=True),
    sa.Column("collection_id", sa.ForeignKey("collections.id", ondelete="CASCADE"), nullable=False),
    sa.Column("document_id", sa.ForeignKey("documents.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("attempts", sa.JSON, nullable=False),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("lease_token", sa.Text),
    sa.Column("lease_until", UtcDateTime),
    sa.Index(None, "created_at", "generation", "id"),
    sa.Index(None, "collection_id", "state"),
    sa.Index(None, "state", "updated_at"),
)

# What answers were made from; `body` holds the whole receipt.
receipts = sa.Table(
    "receipts",
    metadata,
    sa.Column("id", SortedText, primary_key=True),
    sa.Column(
        "collection_id", sa.ForeignKey("collections.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("created_at", UtcDateTime, nullable=False, index=True),
    sa.Column("body", sa.JSON, nullable=False),
)

# What the vector store and the lexical index still hold of document generations that the catalog has
# given up. A worker that has not noticed yet may still be writing: until `held_until` such a row is
# only set aside by `forget_garbage`, then listed once more.
garbage = sa.Table(
    "garbage",
    metadata,
    sa.Column("collection_id", sa.Text, primary_key=True),
    sa.Column("document_key", sa.Text, primary_key=True),
    sa.Column("listed", sa.Boolean, nullable=False),
    sa.Column("held_until", UtcDateTime),
)

# Uploaded bytes that no document needs any more.
orphaned_files = sa.Table("orphaned_files", metadata, sa.Column("sha256", sa.Text, primary_key=True))

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    # NULL: all of them. Names, not ids: a key may be made before its collection.
    sa.Column("collections", sa.JSON(none_as_null=True)),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime),
    sa.Column("revoked_at", UtcDateTime),
)

# Append-only: triggers refuse every change of a row.
audit_events = sa.Table(
    "audit_events",
    metadata,
    sa.Column("sequence", sa.Integer, primary_key=True),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("caller_id", sa.Text, nullable=False),
    sa.Column("caller_name", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("collection", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
)
