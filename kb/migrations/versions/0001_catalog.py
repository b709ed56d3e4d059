"""Create the catalog."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_sorted_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create all tables and their indexes."""
    op.create_table(
        "collections",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", _sorted_text, nullable=False),
        sa.Column("created_at", _time, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("last_generation", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_collections"),
        sa.UniqueConstraint("name", name="uq_collections_name"),
    )
    op.create_table(
        "documents",
        sa.Column("id", _sorted_text, nullable=False),
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("name", _sorted_text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("visible_generation", sa.Integer),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", _time, nullable=False),
        sa.Column("updated_at", _time, nullable=False),
        sa.Column("finished_at", _time),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("source_metadata", sa.JSON, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("pages_done", sa.Integer, nullable=False),
        sa.Column("page_count", sa.Integer, nullable=False),
        sa.Column("chunk_count", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("error", sa.JSON),
        sa.Column("warnings", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_documents"),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            ondelete="CASCADE",
            name="fk_documents_collection_id_collections",
        ),
    )
    op.create_index("ix_documents_sha256", "documents", ["sha256"])
    op.create_index("ix_documents_collection_id_name_id", "documents", ["collection_id", "name", "id"])
    op.create_table(
        "pages",
        sa.Column("document_id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("page_number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("width", sa.Double),
        sa.Column("height", sa.Double),
        sa.Column("blocks", sa.JSON, nullable=False),
        sa.Column("lines", sa.JSON, nullable=False),
        sa.Column("quality", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("document_id", "generation", "page_number", name="pk_pages"),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], ondelete="CASCADE", name="fk_pages_document_id_documents"
        ),
    )
    op.create_table(
        "chunks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("document_id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("context", sa.Text, nullable=False),
        sa.Column("heading_path", sa.JSON, nullable=False),
        sa.Column("spans", sa.JSON, nullable=False),
        sa.Column("records", sa.JSON, nullable=False),
        sa.Column("language", sa.Text, nullable=False),
        sa.Column("token_count", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_chunks"),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], ondelete="CASCADE", name="fk_chunks_document_id_documents"
        ),
    )
    op.create_index(
        "ix_chunks_document_id_generation_position", "chunks", ["document_id", "generation", "position"]
    )
    op.create_table(
        "jobs",
        sa.Column("id", _sorted_text, nullable=False),
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("document_id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", _time, nullable=False),
        sa.Column("updated_at", _time, nullable=False),
        sa.Column("attempts", sa.JSON, nullable=False),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("lease_token", sa.Text),
        sa.Column("lease_until", _time),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            ondelete="CASCADE",
            name="fk_jobs_collection_id_collections",
        ),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], ondelete="CASCADE", name="fk_jobs_document_id_documents"
        ),
    )
    op.create_index("ix_jobs_document_id", "jobs", ["document_id"])
    op.create_index("ix_jobs_created_at_generation_id", "jobs", ["created_at", "generation", "id"])
    op.create_index("ix_jobs_collection_id_state", "jobs", ["collection_id", "state"])
    op.create_index("ix_jobs_state_updated_at", "jobs", ["state", "updated_at"])
    op.create_table(
        "garbage",
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("document_key", sa.Text, nullable=False),
        sa.Column("listed", sa.Boolean, nullable=False),
        sa.Column("held_until", _time),
        sa.PrimaryKeyConstraint("collection_id", "document_key", name="pk_garbage"),
    )
    op.create_table(
        "orphaned_files",
        sa.Column("sha256", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_orphaned_files"),
    )
