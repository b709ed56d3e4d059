"""API keys, and a log of who did what that only grows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create both tables, and what keeps the log as it was written."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("collections", sa.JSON),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("created_at", _time, nullable=False),
        sa.Column("expires_at", _time),
        sa.Column("revoked_at", _time),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("at", _time, nullable=False),
        sa.Column("caller_id", sa.Text, nullable=False),
        sa.Column("caller_name", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("collection", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_audit_events"),
    )
    statements = _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL
    for statement in statements:
        op.execute(statement)


_REFUSAL = "the audit log can only grow"
_SQLITE = [
    f"CREATE TRIGGER audit_events_no_{verb.lower()} BEFORE {verb} ON audit_events "
    f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
    for verb in ("UPDATE", "DELETE")
]
_POSTGRESQL = [
    f"""CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$""",
    "CREATE TRIGGER audit_events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_events "
    "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()",
]
