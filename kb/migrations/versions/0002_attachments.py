"""Documents that came attached to others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_sorted_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table of attachments; what is there already was uploaded."""
    op.add_column("documents", sa.Column("parent_id", sa.Text))
    op.create_table(
        "attachments",
        sa.Column("parent_id", _sorted_text, nullable=False),
        sa.Column("child_id", _sorted_text, nullable=False),
        sa.Column("parent_generation", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("parent_id", "child_id", name="pk_attachments"),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["documents.id"], ondelete="CASCADE", name="fk_attachments_parent_id_documents"
        ),
        sa.ForeignKeyConstraint(
            ["child_id"], ["documents.id"], ondelete="CASCADE", name="fk_attachments_child_id_documents"
        ),
    )
    op.create_index("ix_attachments_child_id", "attachments", ["child_id"])
