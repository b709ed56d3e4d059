"""Runs migrations on the connection that `SqlDatabase.migrate` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from kb.adapters.sql_tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
