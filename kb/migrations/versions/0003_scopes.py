"""Tags of documents, and the calibrated threshold of collections."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what is there has no tags and no threshold of its own."""
    op.add_column("documents", sa.Column("tags", sa.JSON(none_as_null=True)))
    op.add_column("collections", sa.Column("calibration", sa.JSON(none_as_null=True)))
