"""Receipts of answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_sorted_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table; earlier answers left nothing to put into it."""
    op.create_table(
        "receipts",
        sa.Column("id", _sorted_text, nullable=False),
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_receipts"),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            ondelete="CASCADE",
            name="fk_receipts_collection_id_collections",
        ),
    )
    op.create_index("ix_receipts_collection_id", "receipts", ["collection_id"])
    op.create_index("ix_receipts_created_at", "receipts", ["created_at"])
